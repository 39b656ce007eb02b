// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief transport: named memory that several processes map.

#include "../../core/detail/abi.hpp"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace GLOBALQ_ABI::transport::detail {

/// Memory that several processes of one user map. Its name exists only until all have mapped it.
class shared_mapping {
 public:
  using status = struct stat;

  shared_mapping() = default;
  shared_mapping(shared_mapping const&) = delete;
  shared_mapping& operator=(shared_mapping const&) = delete;
  ~shared_mapping() {
    unlink();
    if (memory_ != nullptr) ::munmap(memory_, bytes_);
  }

  std::byte* memory() const { return memory_; }
  /// What open() or create() found; all zeros if there is nothing that this process may open.
  status const& found() const { return found_; }
  /// Name that create(bytes) chose, until unlink().
  std::string const& name() const { return name_; }

  /// Creates zeroed memory under a new name; returns 0 or errno.
  int create(std::size_t bytes) {
    static std::atomic<unsigned> count{0};
    int problem = EEXIST;
    for (int attempt = 0; attempt < 100 && problem == EEXIST; ++attempt) {
      auto const salt = std::chrono::steady_clock::now().time_since_epoch().count();
      std::string const name = "/globalq-" + std::to_string(::getpid()) + "-" + std::to_string(++count) +
                               "-" + std::to_string(salt);
      problem = create(name, bytes);
      if (problem == 0) name_ = name;
    }
    return problem;
  }
  /// As above under a given name, which the caller removes later; EEXIST if it is taken.
  int create(std::string const& name, std::size_t bytes) {
    int const file = ::shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
    if (file < 0) return errno;
    int const problem = map(file, bytes, allocate(file, bytes));
    if (problem != 0) ::shm_unlink(name.c_str());
    return problem;
  }

  /// Maps memory that another process created; returns 0 or errno. ENODATA if it does not have its full size yet; EPERM
  /// if it is not what create() makes: another user could have taken the name first. shm_open() follows no links.
  /// @param grows  enlarge it to this size
  int open(std::string const& name, std::size_t bytes, bool grows = false) {
    int const file = ::shm_open(name.c_str(), O_RDWR, 0600);
    if (file < 0) return errno == ELOOP || errno == EACCES ? EPERM : errno;
    int problem = ::fstat(file, &found_) == 0 ? 0 : errno;
    bool const is_private =
        S_ISREG(found_.st_mode) && found_.st_uid == ::geteuid() && (found_.st_mode & 077) == 0;
    if (problem == 0 && !is_private) problem = EPERM;
    if (problem == 0 && grows)
      problem = allocate(file, bytes);
    else if (problem == 0 && found_.st_size < static_cast<off_t>(bytes))
      problem = ENODATA;
    return map(file, bytes, problem);
  }

  /// Removes a name if it is still that of this memory.
  void remove(std::string const& name) const {
    int const file = ::shm_open(name.c_str(), O_RDONLY, 0600);
    if (file < 0) return;
    status found{};
    if (::fstat(file, &found) == 0 && found.st_dev == found_.st_dev && found.st_ino == found_.st_ino)
      ::shm_unlink(name.c_str());
    ::close(file);
  }

  /// Removes the name that create(bytes) chose.
  void unlink() {
    if (!name_.empty()) ::shm_unlink(std::exchange(name_, {}).c_str());
  }

 private:
  /// Allocates all pages: otherwise a full file system would later end processes by a signal.
  static int allocate(int file, std::size_t bytes) {
    int problem = ::ftruncate(file, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
#if defined(__linux__)
    while (problem == 0 && (problem = ::posix_fallocate(file, 0, static_cast<off_t>(bytes))) == EINTR)
      problem = 0;
#endif
    return problem;
  }

  /// Maps the file, and closes it.
  int map(int file, std::size_t bytes, int problem) {
    int flags = MAP_SHARED;
#if defined(__linux__)
    flags |= MAP_POPULATE;
#endif
    if (problem == 0) {
      void* const there = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
      if (there == MAP_FAILED)
        problem = errno;
      else
        memory_ = static_cast<std::byte*>(there), bytes_ = bytes;
    }
    if (problem == 0 && ::fstat(file, &found_) != 0) problem = errno;
    ::close(file);
    return problem;
  }

  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
  status found_{};
  std::string name_;
};

}  // namespace GLOBALQ_ABI::transport::detail
