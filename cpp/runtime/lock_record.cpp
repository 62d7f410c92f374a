#include "lock_record.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

namespace perseus::runtime {
namespace {

long to_number(const std::string& text) { return std::strtol(text.c_str(), nullptr, 10); }

void read_field(LockRecord& record, const std::string& key, const std::string& value) {
  if (key == "uuid") record.uuid = value;
  if (key == "boot_id") record.boot_id = value;
  if (key == "library") record.library = value;
  if (key == "zeusd_socket") record.zeusd_socket = value;
  if (key == "zeusd_gpu") record.zeusd_gpu = static_cast<int>(to_number(value));
  if (key == "trainer_pid") record.trainer_pid = to_number(value);
  if (key == "guardian_pid") record.guardian_pid = to_number(value);
  if (key == "started_at") record.started_at = to_number(value);
  if (key == "original_min_mhz") record.original_min_mhz = static_cast<unsigned>(to_number(value));
  if (key == "original_max_mhz") record.original_max_mhz = static_cast<unsigned>(to_number(value));
  if (key == "original_limit_mw") record.original_limit_mw = static_cast<unsigned>(to_number(value));
  if (key == "error") record.error = value;
}

std::string read_fd(int fd) {
  std::string text(4096, '\0');
  const ssize_t n = pread(fd, text.data(), text.size(), 0);
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return text;
}

}  // namespace

std::string LockRecord::text() const {
  std::ostringstream out;
  out << "uuid=" << uuid << "\nboot_id=" << boot_id << "\nlibrary=" << library << "\nzeusd_socket=" << zeusd_socket
      << "\nzeusd_gpu=" << zeusd_gpu << "\ntrainer_pid=" << trainer_pid << "\nguardian_pid=" << guardian_pid
      << "\nstarted_at=" << started_at << "\noriginal_min_mhz=" << original_min_mhz
      << "\noriginal_max_mhz=" << original_max_mhz << "\noriginal_limit_mw=" << original_limit_mw << "\nerror=" << error
      << "\n";
  return out.str();
}

LockRecord LockRecord::parse(const std::string& text) {
  LockRecord record;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find('=');
    if (equals != std::string::npos) read_field(record, line.substr(0, equals), line.substr(equals + 1));
  }
  return record;
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

std::optional<LockFile> LockFile::acquire(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), path);
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return LockFile(fd);
  close(fd);
  return std::nullopt;
}

LockFile::LockFile(LockFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

LockFile::~LockFile() {
  if (fd_ >= 0) close(fd_);
}

std::optional<LockRecord> LockFile::stale() const {
  const std::string text = read_fd(fd_);
  if (text.empty()) return std::nullopt;
  LockRecord record = LockRecord::parse(text);
  if (!record.boot_id.empty() && record.boot_id != boot_id()) return std::nullopt;
  return record;
}

void LockFile::write(const LockRecord& record) {
  const std::string text = record.text();
  const bool whole = pwrite(fd_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  if (!whole || ftruncate(fd_, static_cast<off_t>(text.size())) != 0) {
    throw std::system_error(errno, std::generic_category(), "write the lock record");
  }
}

void LockFile::clear() {
  if (ftruncate(fd_, 0) != 0) throw std::system_error(errno, std::generic_category(), "empty the lock record");
}

std::string read_record_text(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return "";
  std::string text = read_fd(fd);
  close(fd);
  return text;
}

}  // namespace perseus::runtime
