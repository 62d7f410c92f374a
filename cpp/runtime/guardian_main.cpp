// The program `perseus-guardian`: detach from the trainer, then guard one GPU (see guardian.hpp).
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "guardian.hpp"

namespace {

/// Leave the trainer's session and process tree: the first child starts a session and ends, its child goes on.
bool detach() {
  if (const pid_t child = fork(); child != 0) _exit(child > 0 ? 0 : 1);
  if (setsid() < 0) return false;
  if (const pid_t child = fork(); child != 0) _exit(child > 0 ? 0 : 1);
  return chdir("/") == 0;
}

bool read_option(perseus::runtime::GuardianTask& task, std::string_view name, const char* value) {
  const auto number = [value] { return std::strtol(value, nullptr, 10); };
  if (name == "--gpu") task.gpu.uuid = value;
  else if (name == "--library") task.gpu.library = value;
  else if (name == "--zeusd-socket") task.gpu.zeusd_socket = value;
  else if (name == "--zeusd-gpu") task.gpu.zeusd_gpu = static_cast<int>(number());
  else if (name == "--record") task.record_path = value;
  else if (name == "--pid") task.trainer_pid = number();
  else if (name == "--socket") task.socket = static_cast<int>(number());
  else if (name == "--original-min-mhz") task.original_min_mhz = static_cast<unsigned>(number());
  else if (name == "--original-max-mhz") task.original_max_mhz = static_cast<unsigned>(number());
  else return false;
  return true;
}

}  // namespace

int main(int count, char** words) {
  perseus::runtime::GuardianTask task;
  for (int i = 1; i + 1 < count; i += 2) {
    if (!read_option(task, words[i], words[i + 1])) return 2;
  }
  if (task.gpu.uuid.empty() || task.record_path.empty() || task.trainer_pid <= 0 || task.socket < 0) return 2;
  if (const char* token = std::getenv("ZEUSD_TOKEN")) task.gpu.zeusd_token = token;
  return detach() ? perseus::runtime::guard(task) : 1;
}
