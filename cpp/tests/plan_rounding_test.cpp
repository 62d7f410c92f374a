#include "perseus/plan_rounding.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace {

using perseus::PlanProblem;
using perseus::round_plan;
using perseus::RoundedPlan;
using perseus::RoundingOptions;
using perseus::RoundingStatus;

// Owns what a PlanProblem looks at.
struct Instance {
  std::vector<std::int64_t> menu_offsets{0};
  std::vector<double> time_s;
  std::vector<double> energy_j;
  std::vector<std::int32_t> menu_of;
  std::vector<double> planned_s;
  std::vector<std::int32_t> predecessor;
  std::vector<std::int32_t> successor;
  std::vector<double> latency_s;
  double deadline_s = 0.0;

  PlanProblem problem() const {
    return {menu_offsets, time_s, energy_j, menu_of, planned_s, predecessor, successor, latency_s, deadline_s};
  }
  std::size_t size() const { return menu_of.size(); }
  std::size_t entry(std::size_t operation, std::int32_t choice) const {
    return static_cast<std::size_t>(menu_offsets[static_cast<std::size_t>(menu_of[operation])] + choice);
  }
  std::int32_t num_choices(std::size_t operation) const {
    const auto menu = static_cast<std::size_t>(menu_of[operation]);
    return static_cast<std::int32_t>(menu_offsets[menu + 1] - menu_offsets[menu]);
  }
  // Dependencies go from lower to higher operations.
  double makespan(const std::vector<std::int32_t>& choice) const {
    std::vector<double> start(size(), 0.0);
    double end = 0.0;
    for (std::size_t i = 0; i < size(); ++i) {
      const double finish = start[i] + time_s[entry(i, choice[i])];
      end = std::max(end, finish);
      for (std::size_t e = 0; e < predecessor.size(); ++e) {
        if (static_cast<std::size_t>(predecessor[e]) != i) continue;
        double& next = start[static_cast<std::size_t>(successor[e])];
        next = std::max(next, finish + latency_s[e]);
      }
    }
    return end;
  }
  double energy(const std::vector<std::int32_t>& choice) const {
    double total = 0.0;
    for (std::size_t i = 0; i < size(); ++i) total += energy_j[entry(i, choice[i])];
    return total;
  }
};

void add_menu(Instance& instance, std::mt19937& random, int num_choices) {
  double time_s = random() % 5 == 0 ? 0.0 : 0.001 * static_cast<double>(1 + random() % 50);
  double energy_j = 100.0;
  for (int c = 0; c < num_choices; ++c) {
    instance.time_s.push_back(time_s);
    instance.energy_j.push_back(energy_j);
    time_s += 0.001 * static_cast<double>(1 + random() % 20);
    energy_j -= 0.5 + static_cast<double>(random() % 100) / 10.0;
  }
  instance.menu_offsets.push_back(static_cast<std::int64_t>(instance.time_s.size()));
}

Instance random_instance(std::mt19937& random, std::size_t size, int most_choices) {
  Instance instance;
  const std::size_t num_menus = 1 + random() % 4;
  for (std::size_t m = 0; m < num_menus; ++m) {
    add_menu(instance, random, 1 + static_cast<int>(random() % static_cast<unsigned>(most_choices)));
  }
  for (std::size_t i = 0; i < size; ++i) {
    instance.menu_of.push_back(static_cast<std::int32_t>(random() % num_menus));
    for (std::size_t j = 0; j < i; ++j) {
      if (random() % 3 != 0) continue;
      instance.predecessor.push_back(static_cast<std::int32_t>(j));
      instance.successor.push_back(static_cast<std::int32_t>(i));
      instance.latency_s.push_back(random() % 3 == 0 ? 0.004 : 0.0);
    }
  }
  // Planned durations a share of the way from fastest to slowest: they meet their own longest path.
  const double share = static_cast<double>(random() % 101) / 100.0;
  std::vector<std::int32_t> fastest(size, 0);
  std::vector<std::int32_t> slowest(size);
  for (std::size_t i = 0; i < size; ++i) {
    slowest[i] = instance.num_choices(i) - 1;
    const double low = instance.time_s[instance.entry(i, 0)];
    instance.planned_s.push_back(low + share * (instance.time_s[instance.entry(i, slowest[i])] - low));
  }
  const double shortest_s = instance.makespan(fastest);
  // A makespan of maxima is convex in the durations, so this is at least that of the planned ones.
  instance.deadline_s = shortest_s + share * (instance.makespan(slowest) - shortest_s) + 1e-12;
  return instance;
}

// The least energy of all choices that meet the deadline.
double brute_force(const Instance& instance) {
  std::vector<std::int32_t> choice(instance.size(), 0);
  double best = std::numeric_limits<double>::infinity();
  for (;;) {
    if (instance.makespan(choice) <= instance.deadline_s) best = std::min(best, instance.energy(choice));
    std::size_t i = 0;
    while (i < choice.size() && ++choice[i] == instance.num_choices(i)) choice[i++] = 0;
    if (i == choice.size()) return best;
  }
}

Instance chain_of_two(double deadline_s) {
  Instance instance;
  instance.menu_offsets = {0, 3};
  instance.time_s = {1.0, 2.0, 4.0};
  instance.energy_j = {10.0, 6.0, 5.0};
  instance.menu_of = {0, 0};
  instance.planned_s = {1.5, 1.5};
  instance.predecessor = {0};
  instance.successor = {1};
  instance.latency_s = {0.0};
  instance.deadline_s = deadline_s;
  return instance;
}

}  // namespace

TEST_CASE("the remainders of two operations pay for one slower choice") {
  const Instance instance = chain_of_two(3.0);
  RoundingOptions plain;
  plain.reclaim = false;
  const RoundedPlan rounded = round_plan(instance.problem(), plain);
  CHECK(rounded.status == RoundingStatus::kComplete);
  CHECK(rounded.energy_j == 20.0);
  CHECK(rounded.makespan_s == 2.0);
  const RoundedPlan plan = round_plan(instance.problem(), {});
  CHECK(plan.energy_j == 16.0);
  CHECK(plan.makespan_s == 3.0);
  CHECK(plan.rounded_energy_j == 20.0);
}

TEST_CASE("a deadline below the fastest choices is refused with their time") {
  const RoundedPlan plan = round_plan(chain_of_two(1.999999).problem(), {});
  CHECK(plan.status == RoundingStatus::kDeadlineTooShort);
  CHECK(plan.makespan_s == 2.0);
}

TEST_CASE("the shortest time itself is feasible, and any time beyond the slowest choices") {
  CHECK(round_plan(chain_of_two(2.0).problem(), {}).makespan_s == 2.0);
  CHECK(round_plan(chain_of_two(1e30).problem(), {}).energy_j == 10.0);
}

TEST_CASE("an exchange takes a choice back where another one saves more") {
  // Rounding down leaves 1 s that only the first operation can use; the last one would save more with 2 s.
  Instance instance;
  instance.menu_offsets = {0, 2, 4};
  instance.time_s = {1.0, 2.0, 1.0, 3.0};
  instance.energy_j = {10.0, 9.0, 10.0, 5.0};
  instance.menu_of = {0, 1};
  instance.planned_s = {2.0, 2.0};
  instance.predecessor = {0};
  instance.successor = {1};
  instance.latency_s = {0.0};
  instance.deadline_s = 4.0;
  RoundingOptions no_exchange;
  no_exchange.exchange_effort = 0;
  CHECK(round_plan(instance.problem(), {}).energy_j == 15.0);
  CHECK(round_plan(instance.problem(), no_exchange).energy_j >= 15.0);
}

TEST_CASE("planned durations that miss the deadline are not used") {
  Instance instance = chain_of_two(3.0);
  instance.planned_s = {4.0, 4.0};
  const RoundedPlan plan = round_plan(instance.problem(), {});
  CHECK(plan.status == RoundingStatus::kComplete);
  CHECK(plan.makespan_s <= 3.0);
  CHECK(plan.energy_j == 16.0);
}

TEST_CASE("problems that do not fit together are refused") {
  Instance cyclic = chain_of_two(3.0);
  cyclic.predecessor = {0, 1};
  cyclic.successor = {1, 0};
  cyclic.latency_s = {0.0, 0.0};
  CHECK(round_plan(cyclic.problem(), {}).status == RoundingStatus::kCyclic);
  Instance outside = chain_of_two(3.0);
  outside.menu_of[1] = 1;
  CHECK(round_plan(outside.problem(), {}).status == RoundingStatus::kInvalid);
  Instance short_plan = chain_of_two(3.0);
  short_plan.planned_s.pop_back();
  CHECK(round_plan(short_plan.problem(), {}).status == RoundingStatus::kInvalid);
  Instance empty_menu = chain_of_two(3.0);
  empty_menu.menu_offsets = {0, 0, 3};
  CHECK(round_plan(empty_menu.problem(), {}).status == RoundingStatus::kInvalid);
  CHECK(round_plan(Instance{}.problem(), {}).status == RoundingStatus::kComplete);
}

TEST_CASE("plans meet the deadline, beat rounding down, and are mostly the best there are") {
  std::mt19937 random(7);
  int best_found = 0;
  constexpr int kTrials = 200;
  for (int trial = 0; trial < kTrials; ++trial) {
    const Instance instance = random_instance(random, 1 + random() % 7, 4);
    const RoundedPlan plan = round_plan(instance.problem(), {});
    REQUIRE(plan.status == RoundingStatus::kComplete);
    REQUIRE(plan.makespan_s <= instance.deadline_s);
    REQUIRE(plan.makespan_s >= instance.makespan(plan.choice) * (1.0 - 1e-12));
    REQUIRE(plan.energy_j == doctest::Approx(instance.energy(plan.choice)));
    REQUIRE(plan.energy_j <= plan.reclaimed_energy_j);
    REQUIRE(plan.reclaimed_energy_j <= plan.rounded_energy_j);
    const double least = brute_force(instance);
    REQUIRE(plan.energy_j >= least * (1.0 - 1e-12));
    best_found += plan.energy_j <= least * (1.0 + 1e-12) ? 1 : 0;
  }
  CHECK(best_found >= kTrials * 8 / 10);
}

TEST_CASE("with no visits to spend, sweeps reclaim until no choice fits") {
  std::mt19937 random(11);
  RoundingOptions sweeps;
  sweeps.reclaim_effort = 0;
  sweeps.exchange_effort = 0;
  for (int trial = 0; trial < 50; ++trial) {
    const Instance instance = random_instance(random, 40, 8);
    const RoundedPlan plan = round_plan(instance.problem(), sweeps);
    REQUIRE(plan.makespan_s <= instance.deadline_s);
    REQUIRE(plan.energy_j <= plan.rounded_energy_j);
    for (std::size_t i = 0; i < instance.size(); ++i) {
      std::vector<std::int32_t> choice = plan.choice;
      if (++choice[i] < instance.num_choices(i)) REQUIRE(instance.makespan(choice) > instance.deadline_s - 1e-9);
    }
  }
}

TEST_CASE("equal problems give equal plans") {
  std::mt19937 random(3);
  const Instance instance = random_instance(random, 300, 10);
  const RoundedPlan one = round_plan(instance.problem(), {});
  const RoundedPlan other = round_plan(instance.problem(), {});
  CHECK(one.choice == other.choice);
  CHECK(one.start_s == other.start_s);
  CHECK(one.energy_j == other.energy_j);
}

namespace {

// Choices of a random instance at its fastest, and at its slowest.
std::vector<std::int32_t> all_fastest(const Instance& instance) { return std::vector<std::int32_t>(instance.size(), 0); }

std::vector<std::int32_t> all_slowest(const Instance& instance) {
  std::vector<std::int32_t> choice(instance.size());
  for (std::size_t i = 0; i < choice.size(); ++i) choice[i] = instance.num_choices(i) - 1;
  return choice;
}

// A row of operations, each behind the one before and some behind others, with ten choices each.
Instance random_row(std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> share(0.0, 1.0);
  Instance instance;
  for (int menu = 0; menu < 4; ++menu) {
    double time_s = 1.0 + share(random);
    double energy_j = 100.0;
    for (int i = 0; i < 10; ++i) {
      instance.time_s.push_back(time_s);
      instance.energy_j.push_back(energy_j);
      time_s += 0.05 + 0.1 * share(random);
      energy_j -= (10.0 - i) * (0.5 + share(random));
    }
    instance.menu_offsets.push_back(static_cast<std::int64_t>(instance.time_s.size()));
  }
  for (std::int32_t i = 0; i < 40; ++i) {
    instance.menu_of.push_back(i % 4);
    for (const std::int32_t gap : {2, 5}) {
      if (i < gap) continue;
      instance.predecessor.push_back(i - gap);
      instance.successor.push_back(i);
      instance.latency_s.push_back(gap == 5 ? 0.25 : 0.0);
    }
  }
  instance.planned_s.assign(instance.size(), 0.0);
  instance.deadline_s = (instance.makespan(all_fastest(instance)) + instance.makespan(all_slowest(instance))) / 2;
  return instance;
}

RoundingOptions thorough() {
  RoundingOptions options;
  options.chain_effort = 1000;
  return options;
}

}  // namespace

TEST_CASE("splices and improvements meet the deadline and never cost more than what they start from") {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    const Instance instance = random_row(seed);
    const perseus::PlanSpace space(instance.problem());
    REQUIRE(space.status() == RoundingStatus::kComplete);
    const double deadline_s = instance.deadline_s;
    for (const auto part : {perseus::SplicedPart::kBeginning, perseus::SplicedPart::kEnd}) {
      const RoundedPlan spliced =
          space.splice(all_fastest(instance), all_slowest(instance), part, deadline_s, RoundingOptions());
      REQUIRE(spliced.status == RoundingStatus::kComplete);
      CHECK(spliced.makespan_s <= deadline_s);
      CHECK(instance.makespan(spliced.choice) <= deadline_s * (1 + 1e-12));
      CHECK(spliced.rounded_energy_j < instance.energy(all_fastest(instance)));
      CHECK(spliced.energy_j <= spliced.rounded_energy_j);
      const RoundedPlan improved = space.improve(spliced.choice, deadline_s, thorough());
      REQUIRE(improved.status == RoundingStatus::kComplete);
      CHECK(instance.makespan(improved.choice) <= deadline_s * (1 + 1e-12));
      CHECK(improved.energy_j <= spliced.energy_j + 1e-9);
      CHECK(improved.energy_j == doctest::Approx(instance.energy(improved.choice)));
      CHECK(space.improve(spliced.choice, deadline_s, thorough()).choice == improved.choice);
    }
  }
}

TEST_CASE("choosing whole chains anew finds what exchanges miss") {
  int better = 0;
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    const Instance instance = random_row(seed);
    const perseus::PlanSpace space(instance.problem());
    const auto fastest = all_fastest(instance);
    const double exchanged_j = space.improve(fastest, instance.deadline_s, RoundingOptions()).energy_j;
    const double chained_j = space.improve(fastest, instance.deadline_s, thorough()).energy_j;
    CHECK(chained_j <= exchanged_j + 1e-9);
    if (chained_j < exchanged_j - 1e-6) ++better;
  }
  CHECK(better > 0);
}

TEST_CASE("a start that misses the deadline, or that is none, is told") {
  const Instance instance = random_row(1);
  const perseus::PlanSpace space(instance.problem());
  const auto slowest = all_slowest(instance);
  const RoundedPlan late = space.improve(slowest, instance.deadline_s, RoundingOptions());
  CHECK(late.status == RoundingStatus::kDeadlineTooShort);
  CHECK(late.makespan_s == doctest::Approx(instance.makespan(slowest)));
  CHECK(space.splice(slowest, slowest, perseus::SplicedPart::kEnd, instance.deadline_s, RoundingOptions()).status ==
        RoundingStatus::kDeadlineTooShort);
  std::vector<std::int32_t> wrong = slowest;
  wrong[3] = 10;
  CHECK(space.improve(wrong, instance.deadline_s, RoundingOptions()).status == RoundingStatus::kInvalid);
  CHECK(space.improve({}, instance.deadline_s, RoundingOptions()).status == RoundingStatus::kInvalid);
  CHECK(space.splice(wrong, slowest, perseus::SplicedPart::kEnd, 1e9, RoundingOptions()).status ==
        RoundingStatus::kInvalid);
  Instance broken = random_row(1);
  broken.menu_of[0] = 9;
  CHECK(perseus::PlanSpace(broken.problem()).status() == RoundingStatus::kInvalid);
}

TEST_CASE("one start is enough for a plan in a hurry") {
  Instance instance = random_row(2);
  instance.planned_s.assign(instance.size(), 1.6);
  RoundingOptions hurried;
  hurried.carry = false;
  hurried.reclaim_effort = 1;
  hurried.exchange_effort = 0;
  const RoundedPlan plan = round_plan(instance.problem(), hurried);
  REQUIRE(plan.status == RoundingStatus::kComplete);
  CHECK(plan.makespan_s <= instance.deadline_s);
  CHECK(plan.exchanges == 0);
}
