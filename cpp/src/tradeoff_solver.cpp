#include "perseus/tradeoff_solver.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "perseus/activity_network.hpp"
#include "perseus/certificate.hpp"
#include "perseus/critical_search.hpp"
#include "perseus/residual_network.hpp"

namespace perseus {

namespace {

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

// Calls the progress callback at most every 50 ms.
class Pacer {
 public:
  explicit Pacer(const SolveOptions& options) : options_(options), last_(Clock::now()) {}

  bool keep_going(const SolveProgress& progress) {
    if (!options_.progress) return true;
    const auto now = Clock::now();
    if (now - last_ < std::chrono::milliseconds(50)) return true;
    last_ = now;
    return options_.progress(progress);
  }

 private:
  using Clock = std::chrono::steady_clock;
  const SolveOptions& options_;
  Clock::time_point last_;
};

// How often an operation of the problem occurs in the pipeline that is solved: the first slot of each region stands for
// the repetitions, since all slots of a region have the same curves.
class Multiplicity {
 public:
  explicit Multiplicity(const SlotMap& map) : map_(map), first_slot_(at(map.num_regions), -1) {
    for (std::size_t slot = map.region.size(); slot-- > 0;) {
      if (map.region[slot] >= 0) first_slot_[at(map.region[slot])] = static_cast<std::int32_t>(slot);
    }
  }

  std::int64_t operator()(std::size_t operation) const {
    if (map_.empty()) return 1;
    const std::int32_t slot = map_.slot[operation];
    const std::int32_t region = map_.region[at(slot)];
    return region >= 0 && first_slot_[at(region)] == slot ? 1 + map_.repeats : 1;
  }

 private:
  const SlotMap& map_;
  std::vector<std::int32_t> first_slot_;  // per region
};

// The energy of one repetition, from the durations of the slots themselves.
template <class Flow>
class SlotEnergy {
 public:
  SlotEnergy(const SlotMap& map, const ActivityNetwork& network, const CurveSet<Flow>& curves,
             std::span<const std::int32_t> arc_curve)
      : network_(network), curves_(curves), arc_curve_(arc_curve), arcs_(map.region.size()) {
    if (map.empty()) return;
    for (std::int32_t arc = 0; arc < network.num_operation_arcs(); ++arc) {
      arcs_[at(map.slot[at(network.operation()[at(arc)])])].push_back(arc);
    }
  }

  // Above that at the longest useful durations, at these potentials.
  Int128 operator()(const std::vector<std::int32_t>& slots, const std::vector<Time>& pi) const {
    Int128 energy = 0;
    for (const std::int32_t slot : slots) {
      for (const std::int32_t arc : arcs_[at(slot)]) {
        const Time duration = pi[at(network_.head()[at(arc)])] - pi[at(network_.tail()[at(arc)])];
        energy += curves_.energy_above_base(arc_curve_[at(arc)], duration);
      }
    }
    return energy;
  }

 private:
  const ActivityNetwork& network_;
  const CurveSet<Flow>& curves_;
  std::span<const std::int32_t> arc_curve_;
  std::vector<std::vector<std::int32_t>> arcs_;  // per slot: its operations' arcs
};

template <class Flow>
class TradeoffSolver {
 public:
  TradeoffSolver(const TradeoffProblem& problem, const SolveOptions& options, TradeoffSolution& solution)
      : problem_(problem), options_(options), solution_(solution) {}

  SolveStatus solve();

 private:
  bool build_network();
  void start_frontier();
  void record_breakpoint(Time time);
  // Repeats the slots between the last two breakpoints; false if the result would not be continuous or not optimal.
  bool extend(const Splice& splice, const SlotEnergy<Flow>& slot_energy);
  Time duration(std::size_t operation_arc) const;
  double energy_j(Int128 above_base) const;
  template <class Engine>
  SolveStatus iterate(Engine& engine, CriticalSearch<Flow>& search);

  const TradeoffProblem& problem_;
  const SolveOptions& options_;
  TradeoffSolution& solution_;
  CurveSet<Flow> curves_;
  ActivityNetwork network_;
  std::vector<std::int32_t> arc_curve_;  // per arc
  std::unique_ptr<ResidualNetwork<Flow>> residual_;
  double base_energy_j_ = 0.0;           // effective energy at the longest useful durations
  Flow value_{0};                        // of the flow
  Int128 energy_ = 0;                    // above base, in slope units times quanta
  Time last_time_ = 0;                   // of the last breakpoint, without repetitions
  Int128 recorded_energy_ = 0;           // the same, with the repetitions
};

template <class Flow>
bool TradeoffSolver<Flow>::build_network() {
  const std::size_t n = problem_.curve_of.size();
  curves_ = CurveSet<Flow>::from_measured(problem_.curves, solution_.quantum, solution_.statistics.slope_unit_w);
  std::vector<Time>& longest = solution_.frontier.longest;
  longest.resize(n);
  std::vector<std::uint8_t> fixed(n);
  const Multiplicity multiplicity(problem_.slots);
  for (std::size_t i = 0; i < n; ++i) {
    const std::int32_t curve = problem_.curve_of[i];
    longest[i] = curve >= 0 ? curves_.max_time(curve) : solution_.quantum.round_up(problem_.fixed_time_s[i]);
    fixed[i] = curve < 0 || curves_.num_breakpoints(curve) == 1;
    if (curve >= 0) base_energy_j_ += static_cast<double>(multiplicity(i)) * curves_.energy_at_max_time_j(curve);
  }
  std::vector<Dependency> dependencies(problem_.predecessor.size());
  for (std::size_t e = 0; e < dependencies.size(); ++e) {
    dependencies[e] = {problem_.predecessor[e], problem_.successor[e],
                       solution_.quantum.round_up(problem_.latency_s[e])};
  }
  if (!network_.build(longest, fixed, dependencies, problem_.slots.slot)) return false;
  arc_curve_.resize(at(network_.num_arcs()));
  std::int32_t no_latency = -1;
  for (std::size_t a = 0; a < arc_curve_.size(); ++a) {
    if (a < at(network_.num_operation_arcs())) {
      arc_curve_[a] = problem_.curve_of[at(network_.operation()[a])];
    } else if (network_.length()[a] != 0) {
      arc_curve_[a] = curves_.add_fixed(network_.length()[a]);
    } else {
      if (no_latency < 0) no_latency = curves_.add_fixed(0);
      arc_curve_[a] = no_latency;
    }
  }
  return true;
}

template <class Flow>
Time TradeoffSolver<Flow>::duration(std::size_t operation_arc) const {
  const std::vector<Time>& potential = residual_->potential();
  return std::min(potential[at(network_.head()[operation_arc])] - potential[at(network_.tail()[operation_arc])],
                  network_.length()[operation_arc]);
}

template <class Flow>
double TradeoffSolver<Flow>::energy_j(Int128 above_base) const {
  const double unit_j = solution_.statistics.slope_unit_w * solution_.quantum.seconds(Time{1});
  return base_energy_j_ + static_cast<double>(above_base) * unit_j;
}

template <class Flow>
void TradeoffSolver<Flow>::start_frontier() {
  Frontier& frontier = solution_.frontier;
  const std::size_t n = at(network_.num_operation_arcs());
  const auto end = static_cast<std::ptrdiff_t>(n);
  frontier.operation.assign(network_.operation().begin(), network_.operation().begin() + end);
  frontier.time.push_back(network_.earliest()[at(network_.sink())]);
  frontier.energy_j.push_back(base_energy_j_);
  frontier.durations.start({network_.length().begin(), network_.length().begin() + end});
}

template <class Flow>
void TradeoffSolver<Flow>::record_breakpoint(Time time) {
  Frontier& frontier = solution_.frontier;
  recorded_energy_ += Int128{value_} * (frontier.time.back() - time);
  frontier.time.push_back(time);
  frontier.energy_j.push_back(energy_j(recorded_energy_));
  frontier.slope_w.push_back(static_cast<double>(value_) * solution_.statistics.slope_unit_w);
  frontier.durations.add([this](std::size_t arc) { return duration(arc); });
}

template <class Flow>
bool TradeoffSolver<Flow>::extend(const Splice& splice, const SlotEnergy<Flow>& slot_energy) {
  Frontier& frontier = solution_.frontier;
  const std::vector<Time>& pi = residual_->potential();
  const std::int64_t repeats = problem_.slots.repeats;
  if (frontier.slope_w.empty()) frontier.time.back() += repeats * splice.longer_tau;
  const Time longer = last_time_ + repeats * splice.longer_tau;
  last_time_ = pi[at(residual_->sink())] - pi[at(residual_->source())];
  if (longer != frontier.time.back()) return false;
  frontier.repeated_slots.insert(frontier.repeated_slots.end(), splice.slots.begin(), splice.slots.end());
  record_breakpoint(last_time_ + repeats * splice.shorter_tau);
  return !options_.certify || recorded_energy_ == energy_ + repeats * slot_energy(splice.slots, pi);
}

template <class Flow>
template <class Engine>
SolveStatus TradeoffSolver<Flow>::iterate(Engine& engine, CriticalSearch<Flow>& search) {
  SolveStatistics& statistics = solution_.statistics;
  const bool spliced = !problem_.slots.empty();
  Certificate<Flow> certificate(network_, curves_, arc_curve_);
  Splicer<Flow> splicer(network_, problem_.slots);
  const SlotEnergy<Flow> slot_energy(problem_.slots, network_, curves_, arc_curve_);
  Splice splice;
  std::vector<Time> shortest(at(network_.num_arcs()));
  for (std::size_t a = 0; a < shortest.size(); ++a) shortest[a] = curves_.min_time(arc_curve_[a]);
  const double longest_s = solution_.quantum.seconds(solution_.frontier.time.front());
  const double shortest_s = solution_.quantum.seconds(network_.longest_path(shortest));
  Pacer pacer(options_);
  for (;;) {
    const Time last_recorded = solution_.frontier.time.back();
    if (options_.certify) {
      if (!certificate.holds(residual_->potential(), residual_->flow(), value_, energy_)) {
        return SolveStatus::kCertificateFailed;
      }
      ++statistics.certificates;
    }
    if (statistics.phases > 0 && solution_.quantum.seconds(last_recorded) <= options_.stop_at_s) {
      return SolveStatus::kStopped;
    }
    while (search.find_levels()) {
      const bool trivial = residual_->source() == residual_->sink();
      const Flow pushed = trivial ? kUnbounded<Flow> : engine.blocking_flow();
      ++statistics.rounds;
      if (pushed >= kUnbounded<Flow>) {
        const bool complete = !spliced || (statistics.phases > 0 && splicer.longest_path(shortest) == last_recorded);
        return complete ? SolveStatus::kComplete : SolveStatus::kNotSpliceable;
      }
      value_ += pushed;
    }
    if (spliced) splicer.begin_interval(*residual_);
    const Time shortened = search.lower_potentials();
    energy_ += Int128{value_} * shortened;
    ++statistics.phases;
    if (!spliced) {
      record_breakpoint(solution_.frontier.time.back() - shortened);
    } else if (!splicer.end_interval(*residual_, splice) || !extend(splice, slot_energy)) {
      return SolveStatus::kNotSpliceable;
    }
    const double time_s = longest_s - solution_.quantum.seconds(solution_.frontier.time.front() - solution_.frontier.time.back());
    if (!pacer.keep_going({statistics.phases, time_s, longest_s, shortest_s})) return SolveStatus::kInterrupted;
  }
}

template <class Flow>
SolveStatus TradeoffSolver<Flow>::solve() {
  if (!build_network()) return SolveStatus::kCyclic;
  solution_.statistics.nodes = network_.num_nodes();
  solution_.statistics.arcs = network_.num_arcs();
  residual_ = std::make_unique<ResidualNetwork<Flow>>(network_, curves_, arc_curve_);
  CriticalSearch<Flow> search(*residual_);
  start_frontier();
  last_time_ = solution_.frontier.time.front();
  if (options_.max_flow == MaxFlowMethod::kAugment) {
    LevelAugment<Flow> engine(*residual_, search);
    return iterate(engine, search);
  }
  PushRelabel<Flow> engine(*residual_, search);
  return iterate(engine, search);
}

// An upper bound on how much longer the pipeline gets by its repetitions: no slot takes longer than twice the average.
double growth(const SlotMap& map) {
  if (map.empty()) return 1.0;
  const auto slots = static_cast<double>(std::count_if(map.region.begin(), map.region.end(), [](auto r) { return r >= 0; }));
  return 1.0 + 2.0 * static_cast<double>(map.repeats) * static_cast<double>(map.num_regions) / slots;
}

// Longest path (s) at the longest measured durations; negative if the dependencies contain a cycle.
double longest_path_s(const TradeoffProblem& problem) {
  const std::size_t n = problem.curve_of.size();
  std::vector<std::int32_t> first(n + 1, 0);
  std::vector<std::int32_t> in_degree(n, 0);
  for (std::size_t e = 0; e < problem.predecessor.size(); ++e) {
    ++first[at(problem.predecessor[e]) + 1];
    ++in_degree[at(problem.successor[e])];
  }
  for (std::size_t i = 0; i < n; ++i) first[i + 1] += first[i];
  std::vector<std::int32_t> out(problem.predecessor.size());
  std::vector<std::int32_t> next(first.begin(), first.end() - 1);
  for (std::size_t e = 0; e < out.size(); ++e) {
    out[at(next[at(problem.predecessor[e])]++)] = static_cast<std::int32_t>(e);
  }
  std::vector<std::int32_t> order;
  order.reserve(n);
  for (std::size_t i = 0; i < n; ++i) {
    if (in_degree[i] == 0) order.push_back(static_cast<std::int32_t>(i));
  }
  std::vector<double> start(n, 0.0);
  double longest = 0.0;
  for (std::size_t done = 0; done < order.size(); ++done) {
    const std::size_t i = at(order[done]);
    const std::int32_t curve = problem.curve_of[i];
    const double end = start[i] + (curve < 0 ? problem.fixed_time_s[i]
                                             : problem.curves.times_s[static_cast<std::size_t>(
                                                   problem.curves.offsets[at(curve) + 1] - 1)]);
    longest = std::max(longest, end);
    for (std::int32_t p = first[i]; p < first[i + 1]; ++p) {
      const std::size_t e = at(out[at(p)]);
      const std::size_t j = at(problem.successor[e]);
      start[j] = std::max(start[j], end + problem.latency_s[e]);
      if (--in_degree[j] == 0) order.push_back(problem.successor[e]);
    }
  }
  return order.size() == n ? longest : -1.0;
}

}  // namespace

TradeoffSolution solve_tradeoff(const TradeoffProblem& problem, const SolveOptions& options) {
  TradeoffSolution solution;
  const double longest_s = longest_path_s(problem);
  if (longest_s < 0.0) {
    solution.status = SolveStatus::kCyclic;
    return solution;
  }
  solution.quantum = TimeQuantum::for_longest_path(longest_s * growth(problem.slots));
  const Multiplicity multiplicity(problem.slots);
  std::vector<std::int64_t> operations_of(problem.curves.size(), 0);
  for (std::size_t i = 0; i < problem.curve_of.size(); ++i) {
    if (problem.curve_of[i] >= 0) operations_of[at(problem.curve_of[i])] += multiplicity(i);
  }
  const SlopeUnit unit = choose_slope_unit(problem.curves, operations_of, solution.quantum);
  if (!unit.representable) {
    solution.status = SolveStatus::kOutOfRange;
    return solution;
  }
  solution.statistics.slope_unit_w = unit.watts;
  solution.statistics.flows_of_64_bits = unit.fits_64_bits;
  solution.status = unit.fits_64_bits ? TradeoffSolver<std::int64_t>(problem, options, solution).solve()
                                      : TradeoffSolver<Int128>(problem, options, solution).solve();
  return solution;
}

}  // namespace perseus
