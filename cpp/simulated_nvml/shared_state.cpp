#include "shared_state.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <new>
#include <vector>

namespace perseus::simulated {
namespace {

constexpr std::uint64_t file_magic = 0x5045525355534731ULL;  // changes with the layout
constexpr std::int64_t ns_per_s = 1'000'000'000;

std::int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * ns_per_s + now.tv_nsec;
}

MachineFile* map_file(int fd) {
  void* memory = mmap(nullptr, sizeof(MachineFile), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<MachineFile*>(memory);
}

void make_robust(pthread_mutex_t& mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

void fill(MachineFile& file, const Machine::Setup& setup) {
  make_robust(file.mutex);
  file.epoch_ns = monotonic_ns();
  file.time_scale = setup.time_scale;
  file.gpu_count = setup.count;
  for (std::uint32_t i = 0; i < setup.count; ++i) {
    file.gpus[i].copies[0] = make_gpu(setup.models[i], i, setup.seed);
  }
  file.magic.store(file_magic, std::memory_order_release);
}

bool matches(const Fault& fault, std::string_view function, int gpu) {
  const std::string_view wanted(fault.function.data());
  return fault.code != 0 && (wanted.empty() || wanted == function) && (fault.gpu < 0 || fault.gpu == gpu);
}

}  // namespace

Machine::Lock::Lock(pthread_mutex_t& mutex) : mutex_(mutex) {
  // The holder died: what it was changing was not flipped to valid, so the state is whole.
  if (pthread_mutex_lock(&mutex_) == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
}

Machine::Lock::~Lock() { pthread_mutex_unlock(&mutex_); }

int Machine::create(const std::string& path, const Setup& setup) {
  const std::string beside = path + ".new." + std::to_string(getpid());
  const int fd = ::open(beside.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return errno;
  int failed = ftruncate(fd, sizeof(MachineFile)) == 0 ? 0 : errno;
  MachineFile* file = failed == 0 ? map_file(fd) : nullptr;
  if (failed == 0 && file == nullptr) failed = errno;
  close(fd);
  if (file != nullptr) {
    fill(*new (file) MachineFile{}, setup);
    munmap(file, sizeof(MachineFile));
    if (rename(beside.c_str(), path.c_str()) != 0) failed = errno;
  }
  if (failed != 0) unlink(beside.c_str());
  return failed;
}

std::unique_ptr<Machine> Machine::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  struct stat info{};
  const bool whole = fstat(fd, &info) == 0 && info.st_size == static_cast<off_t>(sizeof(MachineFile));
  MachineFile* file = whole ? map_file(fd) : nullptr;
  close(fd);
  if (file == nullptr) return nullptr;
  std::unique_ptr<Machine> opened(new Machine(file));
  return file->magic.load(std::memory_order_acquire) == file_magic ? std::move(opened) : nullptr;
}

Machine::~Machine() { munmap(file_, sizeof(MachineFile)); }

double Machine::now_s() const {
  if (is_virtual()) return file_->virtual_s.load();
  return static_cast<double>(monotonic_ns() - file_->epoch_ns) / ns_per_s * file_->time_scale;
}

void Machine::move_to(double time_s) {
  double seen = file_->virtual_s.load();
  while (is_virtual() && seen < time_s && !file_->virtual_s.compare_exchange_weak(seen, time_s)) {
  }
}

void Machine::sleep_until(double time_s) {
  if (is_virtual()) return move_to(time_s);
  const auto wait_ns = static_cast<std::int64_t>(time_s / file_->time_scale * ns_per_s);
  const std::int64_t until_ns = file_->epoch_ns + wait_ns;
  const timespec until{until_ns / ns_per_s, until_ns % ns_per_s};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

int Machine::take_fault(std::string_view function, int gpu) {
  const Lock lock(file_->mutex);
  for (Fault& fault : file_->faults) {
    if (!matches(fault, function, gpu)) continue;
    if (fault.skip > 0) {
      --fault.skip;
      continue;
    }
    const int code = fault.code;
    if (fault.times > 0 && --fault.times == 0) fault.code = 0;
    return code;
  }
  return 0;
}

bool Machine::add_fault(std::string_view function, int gpu, int code, long skip, long times) {
  const Lock lock(file_->mutex);
  const auto unused = std::find_if(file_->faults.begin(), file_->faults.end(), [](const Fault& f) { return f.code == 0; });
  if (unused == file_->faults.end() || function.size() >= name_size || code == 0 || times == 0) return false;
  Fault fault{{}, gpu, code, skip, times};
  std::copy(function.begin(), function.end(), fault.function.begin());
  *unused = fault;
  return true;
}

void Machine::clear_faults() {
  const Lock lock(file_->mutex);
  file_->faults.fill(Fault{});
}

void Machine::record(const SettingCall& call) {
  const Lock lock(file_->mutex);
  const std::uint64_t number = file_->call_count.load();
  file_->calls[number % max_calls] = call;
  file_->call_count.store(number + 1);
}

SettingCall Machine::call(std::uint64_t number) {
  const Lock lock(file_->mutex);
  return file_->calls[number % max_calls];
}

namespace {

std::mutex attach_mutex;
std::atomic<Machine*> attached{nullptr};

std::vector<std::unique_ptr<Machine>>& kept_machines() {
  // Never destroyed: a thread may still be inside a call when the process ends.
  static auto* kept = new std::vector<std::unique_ptr<Machine>>();
  return *kept;
}

}  // namespace

bool attach(const std::string& path) {
  std::unique_ptr<Machine> opened = Machine::open(path);
  if (!opened) return false;
  const std::lock_guard guard(attach_mutex);
  attached.store(opened.get(), std::memory_order_release);
  kept_machines().push_back(std::move(opened));
  return true;
}

Machine* machine() {
  Machine* present = attached.load(std::memory_order_acquire);
  if (present != nullptr) return present;
  const char* path = std::getenv("PERSEUS_SIMULATED_GPU_STATE");
  if (path == nullptr || !attach(path)) return nullptr;
  return attached.load(std::memory_order_acquire);
}

}  // namespace perseus::simulated
