// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq_levels: writes the variance of learned and of fixed levels, on normal values and dumped gradients, as
/// CSV.
///
///   globalq_levels OUTPUT.csv [GRADIENT.f32...]
///
/// With gradients, it prints the time to update levels: solver, values, milliseconds.
///
/// Gradients are files of raw float32, written by `digits --dump-gradients`. `bench/levels/run` runs the program and
/// makes tables and a chart. The variance of a vector x is E||Q(x) - x||^2 / ||x||^2, summed over its values from the
/// two levels next to each; incomplete buckets are left out, because the paper sends them in float32.

#include <globalq/norm/norms.hpp>
#include <globalq/train/learn/gradient_descent.hpp>
#include <globalq/train/learn/level_learner.hpp>
#include <globalq/train/learn/multiplier.hpp>
#include <globalq/train/learn/normals.hpp>
#include <globalq/train/learn/optimal.hpp>
#include <globalq/transport/threads.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace globalq;
using learn::level_set;

/// A vector, its name and its training step.
struct example {
  std::string name, step;
  std::vector<float> x;
};

/// The parameters that vary.
struct setting {
  std::uint64_t bucket;
  int bits;        ///< of a code, its sign included
  bool zero_free;  ///< 2^bits levels in pairs without zero (the paper's program), or 2^bits - 1 with zero
  std::uint32_t size() const {
    return std::min((1U << (bits - 1)) - (zero_free ? 0 : 1), 127U);  // the most that a table can have
  }
  char const* family() const { return zero_free ? "without zero" : "with zero"; }
};

/// Norms and statistics of a vector under one norm.
struct measured {
  std::vector<double> norms;
  learn::bins weighted, equal, parametric, parametric_equal;
};

measured measure(std::vector<float> const& x, std::uint64_t count, std::uint64_t bucket, std::uint32_t q) {
  kernel::host_executor const on{Kokkos::DefaultHostExecutionSpace()};
  const_vector const v{x.data(), dtype::float32};
  std::vector<norm::statistic> found(count / bucket), parts;
  norm::bucket_statistics(on, count, bucket, q, norm::input_block{v, q}, std::span(found), parts);
  measured m;
  for (norm::statistic const& s : found) m.norms.push_back(norm::local_scale(s, q, v.type, 0));
  auto const histogram = [&](learn::weighting w) {
    learn::histogram h({}, w);
    h.add(on, v, count, bucket, m.norms);
    return h.result();
  };
  auto const normals = [&](learn::weighting w) {
    learn::normals n(20, w);
    n.measure(on, v, count, bucket, m.norms);
    return n.result(learn::histogram{}.edges());
  };
  m.weighted = histogram(learn::weighting::squared_norms);
  m.equal = histogram(learn::weighting::equal);
  m.parametric = normals(learn::weighting::squared_norms);
  m.parametric_equal = normals(learn::weighting::equal);
  return m;
}

/// E||Q(x) - x||^2 / ||x||^2.
double variance_of(std::vector<float> const& x, std::uint64_t count, std::uint64_t bucket,
                   std::vector<double> const& norms, level_set const& l) {
  std::vector<double> edge = l.values;
  for (double& e : edge) e = static_cast<double>(static_cast<float>(e));
  if (l.zero_free) edge.insert(edge.begin(), -edge.front());
  double sum = 0, squares = 0;
  for (std::uint64_t b = 0; b * bucket < count; ++b) {
    double part = 0, square = 0;
    if (norms[b] == 0) continue;
    for (std::uint64_t i = b * bucket; i < (b + 1) * bucket; ++i) {
      double const v = std::fabs(static_cast<double>(x[i])), r = std::min(v / norms[b], 1.0);
      auto const c = std::lower_bound(edge.begin() + 1, edge.end() - 1, r);
      part += (*c - r) * (r - *(c - 1));
      square += v * v;
    }
    sum += part * norms[b] * norms[b];
    squares += square;
  }
  return sum / squares;
}

/// A method: the norm of its measurements, and a function that computes levels from them.
struct method {
  std::string name;
  std::uint32_t q;  ///< order of the norm
  std::function<level_set(setting const&, measured const&)> levels;
};

std::vector<method> methods() {
  auto const alq = [](setting const& s, learn::bins const& b, int sweeps) {
    return learn::coordinate_descent{.size = s.size(), .zero_free = s.zero_free, .max_sweeps = sweeps}(b)
        .levels;
  };
  auto const amq = [](setting const& s, learn::bins const& b) {
    return learn::multiplier{.size = s.size(), .zero_free = s.zero_free}(b).levels;
  };
  auto const best = [](setting const& s, learn::bins const& b) {
    return learn::optimal{.size = s.size(), .zero_free = s.zero_free, .sweeps = 20}(b).levels;
  };
  auto const even = [](setting const& s, measured const&) {
    return learn::uniform_levels(s.size(), s.zero_free);
  };
  std::vector<method> list;
  list.push_back(
      {"TernGrad (max)", infinity, [](setting const&, measured const&) { return learn::uniform_levels(1); }});
  list.push_back({"QSGDinf (max)", infinity, even});
  list.push_back({"QSGD", 2, even});
  list.push_back({"NUQSGD", 2, [](setting const& s, measured const&) {
                    return learn::exponential_levels(std::min(s.size(), 61U), 0.5,
                                                     s.zero_free);  // none below 2^-60
                  }});
  list.push_back({"AMQ", 2, [=](setting const& s, measured const& m) { return amq(s, m.weighted); }});
  list.push_back({"AMQ-N", 2, [=](setting const& s, measured const& m) { return amq(s, m.equal); }});
  list.push_back({"ALQ", 2, [=](setting const& s, measured const& m) { return alq(s, m.weighted, 1000); }});
  list.push_back({"ALQ-N", 2, [=](setting const& s, measured const& m) { return alq(s, m.equal, 1000); }});
  list.push_back(
      {"ALQ, 10 sweeps", 2, [=](setting const& s, measured const& m) { return alq(s, m.weighted, 10); }});
  list.push_back({"ALQ of 20 normals", 2,
                  [=](setting const& s, measured const& m) { return alq(s, m.parametric, 1000); }});
  list.push_back({"ALQ-N of one normal", 2,
                  [=](setting const& s, measured const& m) { return alq(s, m.parametric_equal, 1000); }});
  list.push_back(
      {"ALQG", 2, [](setting const& s, measured const& m) {
         return learn::gradient_descent{.size = s.size(), .zero_free = s.zero_free}(m.weighted).levels;
       }});
  list.push_back({"ALQG from powers of 2", 2, [](setting const& s, measured const& m) {
                    learn::gradient_descent const descend{
                        .size = s.size(),
                        .zero_free = s.zero_free,
                        .start =
                            learn::exponential_levels(s.size(), s.size() > 61 ? 0.72 : 0.5, s.zero_free)};
                    return descend(m.weighted).levels;
                  }});
  list.push_back({"optimal", 2, [=](setting const& s, measured const& m) { return best(s, m.weighted); }});
  list.push_back(
      {"optimal (max)", infinity, [=](setting const& s, measured const& m) { return best(s, m.weighted); }});
  return list;
}

class table {
 public:
  explicit table(std::string const& path) : file_(path) {
    file_ << "source,step,bucket,bits,family,method,variance,levels\n";
  }
  void row(std::string const& name, std::string const& step, setting const& s, std::string const& how,
           double variance, level_set const& l) {
    char number[64];
    std::snprintf(number, sizeof number, "%.6g", variance);
    file_ << name << ',' << step << ',' << s.bucket << ',' << s.bits << ',' << s.family() << ",\"" << how
          << "\"," << number << ',';
    for (std::size_t i = 0; i < l.values.size() && l.values.size() <= 16; ++i) {
      std::snprintf(number, sizeof number, "%s%.5g", i > 0 ? " " : "", l.values[i]);
      file_ << number;
    }
    file_ << '\n';
  }
  bool good() const { return file_.good(); }

 private:
  std::ofstream file_;
};

void study(example const& from, std::vector<setting> const& settings, table& out) {
  std::map<std::pair<std::uint64_t, std::uint32_t>, measured> seen;
  for (setting const& s : settings) {
    std::uint64_t const count = from.x.size() / s.bucket * s.bucket;
    if (count == 0) continue;
    for (method const& how : methods()) {
      auto const key = std::make_pair(s.bucket, how.q);
      if (!seen.contains(key)) seen.emplace(key, measure(from.x, count, s.bucket, how.q));
      measured const& m = seen.at(key);
      level_set const l = how.levels(s, m);
      out.row(from.name, from.step, s, how.name, variance_of(from.x, count, s.bucket, m.norms, l), l);
    }
  }
}

/// |N(0, 1/bucket)| truncated to [0, 1]: the distribution of a bucket of normal values divided by their l2 norm.
void closed_forms(std::vector<setting> const& settings, table& out) {
  for (setting const& s : settings) {
    learn::truncated_normal const f(0, 1 / std::sqrt(static_cast<double>(s.bucket)));
    double const each = static_cast<double>(s.bucket) / (static_cast<double>(s.bucket) * f.below(1).second);
    auto const row = [&](char const* name, level_set const& l) {
      out.row("truncated normal", "", s, name, each * learn::variance(f, l), l);
    };
    row("QSGD", learn::uniform_levels(s.size(), s.zero_free));
    row("NUQSGD", learn::exponential_levels(s.size(), 0.5, s.zero_free));
    row("AMQ", learn::multiplier{.size = s.size(), .zero_free = s.zero_free}(f).levels);
    row("ALQ",
        learn::coordinate_descent{.size = s.size(), .zero_free = s.zero_free, .max_sweeps = 1000}(f).levels);
    row("ALQ, 10 sweeps",
        learn::coordinate_descent{.size = s.size(), .zero_free = s.zero_free, .max_sweeps = 10}(f).levels);
    row("ALQG", learn::gradient_descent{.size = s.size(), .zero_free = s.zero_free}(f).levels);
    learn::bins const b = learn::discretize(f, learn::histogram(learn::histogram_shape{16, 9}).edges());
    row("optimal", learn::optimal{.size = s.size(), .zero_free = s.zero_free, .sweeps = 20}(b).levels);
  }
}

/// Uses the levels learned at one step at all others.
void held(std::vector<example> const& gradients, setting const& s, table& out) {
  for (example const& learned : gradients) {
    std::uint64_t const count = learned.x.size() / s.bucket * s.bucket;
    level_set const l = learn::optimal{.size = s.size(), .zero_free = s.zero_free}(
                            measure(learned.x, count, s.bucket, 2).weighted)
                            .levels;
    for (example const& used : gradients) {
      std::uint64_t const all = used.x.size() / s.bucket * s.bucket;
      out.row(used.name, used.step, s, "learned at step " + learned.step,
              variance_of(used.x, all, s.bucket, measure(used.x, all, s.bucket, 2).norms, l), l);
    }
  }
}

/// Prints the time of an update by two workers with each solver: norms, histogram, exchange, solution. Solvers run in
/// turn, so that other load on the machine affects all of them.
void time_updates(std::vector<float> const& x) {
  constexpr int times = 51;
  using learner = learn::level_learner<norm::local<2>>;
  norm::local<2> const measure{.bucket = 8192};
  learn::learner_options const always{.schedule = {.once = {}, .every = 1}};
  std::vector<std::pair<std::string, learner>> all;
  for (std::uint32_t size : {4U, 8U, 64U}) {
    std::string const levels = std::to_string(2 * size) + " levels, ";
    all.emplace_back(levels + "optimal",
                     learner{measure, learn::optimal{.size = size, .zero_free = true}, always});
    all.emplace_back(levels + "ALQ",
                     learner{measure, learn::coordinate_descent{.size = size, .zero_free = true}, always});
  }
  std::vector<std::vector<double>> ms(all.size());
  transport::threads cluster(2);
  cluster.run([&](auto& workers) {
    auto own = all;
    for (std::uint64_t step = 1; step <= times; ++step)
      for (std::size_t k = 0; k < own.size(); ++k) {
        transport::barrier(workers);
        auto const start = std::chrono::steady_clock::now();
        if (!own[k].second.update(workers, x, step))
          throw std::runtime_error("globalq_levels: nothing was learned");
        auto const time = std::chrono::steady_clock::now() - start;
        if (workers.rank() == 0) ms[k].push_back(std::chrono::duration<double, std::milli>(time).count());
      }
  });
  for (std::size_t k = 0; k < all.size(); ++k) {
    std::nth_element(ms[k].begin(), ms[k].begin() + times / 4, ms[k].end());
    std::printf("%s,%zu,%.3g\n", all[k].first.c_str(), x.size(),
                ms[k][times / 4]);  // the lower quartile, because two workers rarely find two idle cores
  }
}

/// DIR/step100-worker0.f32 -> {"gradient", "100", its values}
example read(std::string const& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> const bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.good() && bytes.empty()) throw std::runtime_error("globalq_levels: cannot read " + path);
  example s{"gradient", "", std::vector<float>(bytes.size() / sizeof(float))};
  std::copy_n(bytes.data(), s.x.size() * sizeof(float), reinterpret_cast<char*>(s.x.data()));
  std::size_t const at = path.rfind("step");
  if (at != std::string::npos) s.step = path.substr(at + 4, path.find('-', at) - at - 4);
  return s;
}

}  // namespace

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const kokkos(argc, argv);
  if (argc < 2) {
    std::fputs("usage: globalq_levels OUTPUT.csv [GRADIENT.f32...]\n", stderr);
    return 2;
  }
  try {
    table out(argv[1]);
    std::vector<setting> usual, sweeps;
    for (bool zero_free : {true, false}) {
      for (std::uint64_t bucket : {128ULL, 8192ULL, 16384ULL}) usual.push_back({bucket, 3, zero_free});
      for (std::uint64_t bucket = 16; bucket <= 65536; bucket *= 4) sweeps.push_back({bucket, 3, zero_free});
      for (int bits = 2; bits <= 8; ++bits) sweeps.push_back({16384, bits, zero_free});
    }
    closed_forms(usual, out);
    example normal{"normal", "", std::vector<float>(1 << 20)};
    std::mt19937_64 bits(1);
    for (float& v :
         normal.x) {  // Box-Muller, because the standard does not fix the results of its distributions
      double const u = (static_cast<double>(bits() >> 11) + 0.5) * 0x1p-53,
                   w = (static_cast<double>(bits() >> 11) + 0.5) * 0x1p-53;
      v = static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * w));
    }
    study(normal, usual, out);
    std::vector<example> gradients;
    for (int i = 2; i < argc; ++i) gradients.push_back(read(argv[i]));
    for (example const& g : gradients) study(g, usual, out);
    if (!gradients.empty()) {
      example middle = gradients[gradients.size() / 2];
      middle.name = "sweep";
      study(middle, sweeps, out);
      held(gradients, {8192, 3, true}, out);
      time_updates(middle.x);
    }
    if (!out.good()) throw std::runtime_error(std::string("globalq_levels: cannot write ") + argv[1]);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
