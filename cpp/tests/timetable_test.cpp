#include "perseus/timetable.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

namespace {

using perseus::BitWorklist;
using perseus::PrecedenceGraph;
using perseus::Time;
using perseus::Timetable;

struct Dependencies {
  std::vector<std::int32_t> predecessor;
  std::vector<std::int32_t> successor;
  std::vector<Time> latency;
};

Dependencies random_dependencies(std::mt19937& random, std::int32_t size) {
  Dependencies result;
  for (std::int32_t i = 0; i < size; ++i) {
    for (std::int32_t j = i + 1; j < size; ++j) {
      if (random() % 4 != 0) continue;
      // Numbers that run against the order: the graph has to find its own.
      result.predecessor.push_back(size - 1 - i);
      result.successor.push_back(size - 1 - j);
      result.latency.push_back(static_cast<Time>(random() % 3));
    }
  }
  return result;
}

PrecedenceGraph graph_of(std::size_t size, const Dependencies& dependencies) {
  PrecedenceGraph graph;
  REQUIRE(graph.build(size, dependencies.predecessor, dependencies.successor));
  graph.set_latencies(dependencies.latency);
  return graph;
}

void check_equal(const Timetable& one, const Timetable& other, std::int32_t size) {
  for (std::int32_t v = 0; v < size; ++v) {
    REQUIRE(one.duration(v) == other.duration(v));
    REQUIRE(one.start(v) == other.start(v));
    REQUIRE(one.limit(v) == other.limit(v));
  }
}

}  // namespace

TEST_CASE("a worklist hands out its lowest and highest members") {
  BitWorklist list;
  list.resize(200);
  for (const std::int32_t value : {7, 199, 64, 63, 7}) list.insert(value);
  CHECK(list.pop_lowest(0) == 7);
  CHECK(list.pop_lowest(7) == 63);
  CHECK(list.pop_highest(199) == 199);
  CHECK(list.pop_highest(199) == 64);
  CHECK(list.empty());
}

TEST_CASE("a graph refuses a cycle and accepts no operations") {
  PrecedenceGraph graph;
  const std::vector<std::int32_t> from{0, 1, 2};
  const std::vector<std::int32_t> to{1, 2, 0};
  CHECK_FALSE(graph.build(3, from, to));
  CHECK(graph.build(0, {}, {}));
  CHECK(graph.size() == 0);
}

TEST_CASE("a diamond has the starts and limits that follow by hand") {
  const Dependencies dependencies{{0, 0, 1, 2}, {1, 2, 3, 3}, {0, 5, 0, 0}};
  const PrecedenceGraph graph = graph_of(4, dependencies);
  Timetable table(graph);
  table.reset(std::vector<Time>{2, 3, 4, 1}, 20);
  CHECK(table.makespan() == 12);
  CHECK(table.start(3) == 11);
  CHECK(table.slack(1) == 14);
  CHECK(table.slack(2) == 8);
  table.set_duration(1, 17);
  CHECK(table.makespan() == 20);
  CHECK(table.slack(1) == 0);
  CHECK(table.slack(0) == 0);
  CHECK(table.slack(2) == 8);
}

TEST_CASE("changes carry on to what a fresh timetable has, and can be undone") {
  std::mt19937 random(1);
  for (int trial = 0; trial < 50; ++trial) {
    const auto size = static_cast<std::int32_t>(1 + random() % 90);
    const PrecedenceGraph graph = graph_of(static_cast<std::size_t>(size), random_dependencies(random, size));
    std::vector<Time> durations(static_cast<std::size_t>(size));
    for (Time& d : durations) d = static_cast<Time>(random() % 10);
    Timetable table(graph);
    Timetable fresh(graph);
    table.reset(durations, 1000);
    for (int change = 0; change < 20; ++change) {
      const Timetable before = table;
      const bool undo = random() % 2 == 0;
      if (undo) table.open_journal();
      const std::vector<Time> kept = durations;
      for (int step = 0; step < 3; ++step) {
        const auto v = static_cast<std::int32_t>(random() % static_cast<unsigned>(size));
        durations[static_cast<std::size_t>(v)] = static_cast<Time>(random() % 10);
        table.set_duration(v, durations[static_cast<std::size_t>(v)]);
      }
      fresh.reset(durations, 1000);
      check_equal(table, fresh, size);
      if (!undo) continue;
      table.undo_changes();
      durations = kept;
      check_equal(table, before, size);
    }
  }
}
