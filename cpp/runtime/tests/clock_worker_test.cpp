#include "clock_worker.hpp"

#include <doctest/doctest.h>

#include <thread>
#include <vector>

#include "fake_gpu.hpp"

using perseus::runtime::ClockRecord;
using perseus::runtime::ClockStatistics;
using perseus::runtime::ClockWorker;

TEST_CASE("a wish reaches the driver and is read back") {
  FakeState state;
  ClockWorker worker(std::make_unique<FakeGpu>(state));
  worker.request(900);
  REQUIRE(worker.drain(10));
  CHECK(state.clock == 900);
  const std::vector<ClockRecord> records = worker.take_records();
  REQUIRE(records.size() == 1);
  CHECK(records[0].requested_mhz == 900);
  CHECK(records[0].achieved_mhz == 900);
  CHECK(records[0].code == 0);
  CHECK(records[0].applied_s >= records[0].requested_s);
  CHECK(worker.take_records().empty());
}

TEST_CASE("the latest wish wins, and the others cost nothing") {
  FakeState state;
  state.latency = std::chrono::milliseconds(20);
  ClockWorker worker(std::make_unique<FakeGpu>(state));
  for (unsigned i = 0; i < 1000; ++i) worker.request(210 + i);
  REQUIRE(worker.drain(10));
  CHECK(state.clock == 1209);
  const ClockStatistics s = worker.statistics();
  CHECK(s.requests == 1000);
  CHECK(s.applied + s.coalesced == 1000);
  CHECK(state.locks < 100);
  CHECK(s.latency_s >= 0.020);
}

TEST_CASE("a wish for the clock that is set costs no driver call") {
  FakeState state;
  ClockWorker worker(std::make_unique<FakeGpu>(state));
  for (int i = 0; i < 5; ++i) {
    worker.request(900);
    REQUIRE(worker.drain(10));
  }
  CHECK(state.locks == 1);
  CHECK(worker.statistics().coalesced == 4);
}

TEST_CASE("a wish shorter than the driver's latency is skipped") {
  FakeState state;
  state.latency = std::chrono::milliseconds(15);
  ClockWorker worker(std::make_unique<FakeGpu>(state));
  worker.request(900);
  REQUIRE(worker.drain(10));
  worker.request(600, 0.001);
  REQUIRE(worker.drain(10));
  CHECK(state.clock == 900);
  CHECK(worker.statistics().skipped == 1);
  worker.request(600, 1000.0);
  REQUIRE(worker.drain(10));
  CHECK(state.clock == 600);
}

TEST_CASE("a call that comes back too late is a missed deadline") {
  FakeState state;
  state.latency = std::chrono::milliseconds(15);
  ClockWorker worker(std::make_unique<FakeGpu>(state));
  worker.request(600, 0.002);  // the latency isn't known yet
  REQUIRE(worker.drain(10));
  const ClockStatistics s = worker.statistics();
  CHECK(s.missed_deadlines + s.skipped == 1);  // skipped only if the thread started too late
}

TEST_CASE("a clock that isn't held is recorded with its reason") {
  FakeState state;
  state.held_mhz = 1005;
  ClockWorker worker(std::make_unique<FakeGpu>(state));
  worker.request(1200);
  REQUIRE(worker.drain(10));
  const std::vector<ClockRecord> records = worker.take_records();
  REQUIRE(records.size() == 1);
  CHECK(records[0].achieved_mhz == 1005);
  CHECK(records[0].reasons == 0x20);
}

TEST_CASE("errors are counted, and after three in a row the worker unlocks and gives up") {
  FakeState state;
  ClockWorker worker(std::make_unique<FakeGpu>(state));
  worker.request(900);
  REQUIRE(worker.drain(10));
  state.fail_next = 2;
  for (const unsigned mhz : {600U, 615U, 630U}) {
    worker.request(mhz);
    REQUIRE(worker.drain(10));
  }
  CHECK(worker.statistics().failed == 2);
  CHECK_FALSE(worker.statistics().gave_up);
  state.fail_next = 3;
  for (const unsigned mhz : {600U, 615U, 645U}) {
    worker.request(mhz);
    REQUIRE(worker.drain(10));
  }
  CHECK(worker.statistics().gave_up);
  CHECK(worker.statistics().last_code == 15);
  CHECK(state.resets == 1);
  worker.request(900);
  REQUIRE(worker.drain(10));
  CHECK(state.clock == 1410);
}

TEST_CASE("many threads may wish at once, and stop is safe in the middle") {
  FakeState state;
  state.latency = std::chrono::microseconds(50);
  ClockWorker worker(std::make_unique<FakeGpu>(state));
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t) {
    threads.emplace_back([&worker, t] {
      for (unsigned i = 0; i < 2000; ++i) worker.request(300 + 15 * ((i + t) % 40), i % 3 == 0 ? 0.01 : 0.0);
    });
  }
  for (int i = 0; i < 20; ++i) {
    static_cast<void>(worker.statistics());
    static_cast<void>(worker.take_records());
  }
  for (std::thread& thread : threads) thread.join();
  worker.request(777);
  REQUIRE(worker.drain(10));
  CHECK(state.clock == 777);
  CHECK(worker.statistics().requests == 6001);
  worker.request(800);
  worker.stop();
  worker.stop();
  worker.request(900);  // ignored
  CHECK(state.clock != 900);
}

TEST_CASE("a worker that was never used ends") {
  FakeState state;
  { ClockWorker worker(std::make_unique<FakeGpu>(state)); }
  CHECK(state.locks == 0);
}
