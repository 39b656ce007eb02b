// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief c: the library: version, errors, operators.

#include "handles.hpp"

#include <globalq/kernel/isa/set.hpp>
#include <globalq/named/compressors.hpp>
#include <globalq/version.hpp>

#include <Kokkos_Core.hpp>
#include <array>
#include <mutex>
#include <new>
#include <vector>

namespace globalq_c {
namespace {

/// The text of a thread's last error, in a fixed array, so that it can be stored when memory is exhausted.
thread_local std::array<char, 2048> last_error{};

/// Parameters or words, one per line.
std::string parameters_of(std::span<gq::named::parameter const> all) {
  std::string text;
  for (gq::named::parameter const& p : all)
    text.append(p.name)
        .append("=")
        .append(p.usual)
        .append(": ")
        .append(p.meaning)
        .append(" (")
        .append(p.allowed)
        .append(")\n");
  return text;
}

/// The texts of an operator as C strings.
struct operator_texts {
  std::string name, title, source, bound, schedule, parameters;
};
std::vector<operator_texts> const& all_operators() {
  static std::vector<operator_texts> const all = [] {
    std::vector<operator_texts> made;
    for (gq::named::entry const& e : gq::named::operators())
      made.push_back({std::string(e.name), std::string(e.title), std::string(e.source), std::string(e.bound),
                      e.make({e.name, e.parameters}).schedule, parameters_of(e.parameters)});
    for (gq::named::compressor_entry const& e : gq::named::compressors())
      made.push_back({std::string(e.name), std::string(e.title), std::string(e.source), std::string(e.error),
                      "", parameters_of(e.parameters)});
    return made;
  }();
  return all;
}

}  // namespace

globalq_status failed(globalq_status status, char const* text) noexcept {
  std::size_t const length = std::min(std::strlen(text), last_error.size() - 1);
  std::memmove(last_error.data(), text, length);
  last_error[length] = '\0';
  return status;
}

globalq_status status_of_exception() noexcept {
  try {
    throw;
  } catch (failure const& e) {
    return failed(e.status, e.what());
  } catch (gq::configuration_error const& e) {
    return failed(GLOBALQ_CONFIGURATION, e.what());
  } catch (gq::disagreement_error const& e) {
    return failed(GLOBALQ_DISAGREEMENT, e.what());
  } catch (gq::transport_error const& e) {
    return failed(GLOBALQ_TRANSPORT, e.what());
  } catch (gq::non_finite_error const& e) {
    return failed(GLOBALQ_NON_FINITE, e.what());
  } catch (gq::frame_error const& e) {
    return failed(GLOBALQ_FRAME, e.what());
  } catch (std::bad_alloc const&) {
    return failed(GLOBALQ_NO_MEMORY, "globalq: out of memory; use shorter vectors, or fewer at a time");
  } catch (std::exception const& e) {
    return failed(GLOBALQ_OTHER, e.what());
  } catch (...) {
    return failed(GLOBALQ_OTHER, "globalq: an exception that is not derived from std::exception");
  }
}

gq::transport::options deadline_of(char const* operation, double seconds) {
  if (!(seconds > 0 && seconds < 1e9))
    refuse(operation, "a deadline of " + std::to_string(seconds) + " s",
           "use more than 0 s and less than 10^9 s");
  return {.deadline =
              std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds))};
}

gq::dtype type_of(char const* operation, globalq_type type) {
  switch (type) {
    case GLOBALQ_FLOAT32:
      return gq::dtype::float32;
    case GLOBALQ_FLOAT64:
      return gq::dtype::float64;
    case GLOBALQ_FLOAT16:
      return gq::dtype::float16;
    case GLOBALQ_BFLOAT16:
      return gq::dtype::bfloat16;
  }
  refuse(operation, "there is no type " + std::to_string(static_cast<int>(type)), "use one of globalq_type");
}

void start_kokkos() {
  static std::mutex once;
  std::scoped_lock const lock(once);
  if (Kokkos::is_finalized())
    refuse("globalq", "Kokkos was finalized in this process", "use globalq before that");
  if (!Kokkos::is_initialized())
    Kokkos::initialize(Kokkos::InitializationSettings{}.set_disable_warnings(true));
}

}  // namespace globalq_c

using namespace globalq_c;

char const* globalq_version() { return GLOBALQ_VERSION; }
int globalq_interface() { return GLOBALQ_C_INTERFACE; }
char const* globalq_error() { return last_error.data(); }

char const* globalq_instructions() {
  char const* name = "";
  guarded([&] { name = gq::kernel::isa::chosen().name; });
  return name;
}

globalq_status globalq_words(char const** found) {
  return guarded([&] {
    static std::string const text = parameters_of(gq::named::words_of_operators());
    expect("globalq_words", "found", found) = text.c_str();
  });
}

globalq_status globalq_operator_words(char const* operator_name, char const** found) {
  constexpr char const* operation = "globalq_operator_words";
  return guarded([&] {
    static thread_local std::string text;
    expect(operation, "found", found) = nullptr;
    text = gq::named::words_of(gq::named::read_operator(&expect(operation, "operator_name", operator_name)));
    *found = text.c_str();
  });
}

globalq_status globalq_operator_at(size_t number, globalq_operator* found) {
  return guarded([&] {
    auto const& all = all_operators();
    if (number >= all.size())
      refuse("globalq_operator_at", "there is no operator " + std::to_string(number),
             "there are " + std::to_string(all.size()) + " operators, counted from 0");
    operator_texts const& o = all[number];
    write("globalq_operator_at", "found",
          globalq_operator{0, o.name.c_str(), o.title.c_str(), o.source.c_str(), o.bound.c_str(),
                           o.schedule.c_str(), o.parameters.c_str()},
          found);
  });
}
