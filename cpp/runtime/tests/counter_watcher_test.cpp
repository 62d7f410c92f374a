#include "counter_watcher.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <thread>

#include "fake_gpu.hpp"

using perseus::runtime::CounterChange;
using perseus::runtime::CounterWatcher;

TEST_CASE("each change is seen once, in order, within its bounds") {
  FakeState state;
  CounterWatcher watcher(std::make_unique<FakeGpu>(state), 0.0002);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::vector<CounterChange> seen;
  for (std::uint64_t i = 1; i <= 10; ++i) {
    state.energy = i * 100;
    while (seen.size() < i) {
      for (const CounterChange& change : watcher.take_changes()) seen.push_back(change);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  for (std::size_t i = 0; i < seen.size(); ++i) {
    CHECK(seen[i].energy_mj == (i + 1) * 100);
    CHECK(seen[i].after_s < seen[i].by_s);
    if (i > 0) CHECK(seen[i].by_s > seen[i - 1].by_s);
  }
  watcher.stop();
}

TEST_CASE("a failing counter ends the watch with its code") {
  FakeState state;
  state.energy_code = 3;
  CounterWatcher watcher(std::make_unique<FakeGpu>(state), 0.0002);
  while (watcher.code() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(watcher.code() == 3);
}
