#include "guardian.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>

#include "fake_gpu.hpp"
#include "zeusd.hpp"

using namespace perseus::runtime;

namespace {

struct TemporaryFile {
  std::string path = "/tmp/perseus-guardian-test-XXXXXX";
  TemporaryFile() { close(mkstemp(path.data())); }
  ~TemporaryFile() { unlink(path.c_str()); }
};

}  // namespace

TEST_CASE("a record comes back as it was written") {
  LockRecord record;
  record.uuid = "GPU-1";
  record.boot_id = "b";
  record.library = "/lib/x=y";
  record.zeusd_gpu = 3;
  record.trainer_pid = 12;
  record.original_limit_mw = 250'000;
  record.original_min_mhz = 300;
  record.original_max_mhz = 900;
  const LockRecord read = LockRecord::parse(record.text() + "newer_key=1\nnonsense");
  CHECK(read.text() == record.text());
}

TEST_CASE("a record is stale when its owner is gone, void after a reboot") {
  const TemporaryFile file;
  {
    auto lock = LockFile::acquire(file.path);
    REQUIRE(lock.has_value());
    CHECK_FALSE(lock->stale().has_value());
    LockRecord record;
    record.uuid = "GPU-1";
    record.boot_id = boot_id();
    lock->write(record);
    CHECK_FALSE(LockFile::acquire(file.path).has_value());
  }
  auto lock = LockFile::acquire(file.path);
  REQUIRE(lock.has_value());
  REQUIRE(lock->stale().has_value());
  LockRecord record = *lock->stale();
  CHECK(record.uuid == "GPU-1");
  record.boot_id = "another boot";
  lock->write(record);
  CHECK_FALSE(lock->stale().has_value());
  lock->clear();
  CHECK(read_record_text(file.path).empty());
  CHECK_THROWS(LockFile::acquire("/nowhere/x"));
}

TEST_CASE("restoring puts back clocks and power limit, and tries again") {
  FakeState state;
  FakeGpu gpu(state);
  state.clock = 600;
  state.limit_mw = 150'000;
  state.fail_next = 3;
  LockRecord record;
  record.original_limit_mw = 300'000;
  CHECK(restore(gpu, record) == 0);
  CHECK(state.clock == 1410);
  CHECK(state.limit_mw == 300'000);
  record.original_min_mhz = 500;
  record.original_max_mhz = 900;
  CHECK(restore(gpu, record) == 0);
  CHECK(state.clock == 900);
}

TEST_CASE("answers of zeusd become NVML codes, and no daemon is no driver") {
  CHECK(code_of_status(200) == 0);
  CHECK(code_of_status(403) == 4);
  CHECK(code_of_status(400) == 2);
  CHECK(code_of_status(500) == 999);
  CHECK(Zeusd("/nowhere/zeusd.sock", "", 0).post("reset_gpu_locked_clocks", "") == 9);
  CHECK(Zeusd(std::string(200, 'x'), "", 0).post("reset_gpu_locked_clocks", "") == 9);
}
