// The record of one GPU's changed settings, in a file that outlives its writer.
//
// Whoever changes a GPU's clocks first writes down how to undo it. The file is held by an exclusive `flock`
// as long as its owner lives, which the kernel gives back on any death. Hence, of a file with text in it:
//   * lock taken by another: a live owner;
//   * lock free: its owner died with the settings changed. They are *stale*, and the text says how to undo them.
// A file is emptied, never removed, when the settings are undone: removing it would race with a new owner.
// Settings don't survive a reboot, so a record of another boot is void.
//
// The text is lines of `key=value`; unknown keys are kept by readers for newer writers.
#pragma once

#include <optional>
#include <string>

namespace perseus::runtime {

struct LockRecord {
  std::string uuid;
  std::string boot_id;
  std::string library;         ///< NVML library that the settings went through.
  std::string zeusd_socket;    ///< Or the daemon they went through.
  int zeusd_gpu = -1;
  long trainer_pid = 0;
  long guardian_pid = 0;
  long started_at = 0;         ///< Unix time.
  unsigned original_min_mhz = 0;  ///< 0 and 0: clocks were not locked.
  unsigned original_max_mhz = 0;
  unsigned original_limit_mw = 0; ///< 0: the power limit isn't known, leave it.
  std::string error;           ///< Why undoing failed, if it did.

  std::string text() const;
  static LockRecord parse(const std::string& text);
};

/// The identity of this boot of the machine ("" where the system gives none).
std::string boot_id();

/// An open, locked record file.
class LockFile {
 public:
  /// Open and lock; nothing when another process holds it. Throws std::system_error when the file can't be opened.
  static std::optional<LockFile> acquire(const std::string& path);

  LockFile(LockFile&& other) noexcept;
  ~LockFile();
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;
  LockFile& operator=(LockFile&&) = delete;

  /// The record left behind by a dead owner of this boot, if any.
  std::optional<LockRecord> stale() const;
  void write(const LockRecord& record);
  void clear();

 private:
  explicit LockFile(int fd) : fd_(fd) {}
  int fd_;
};

/// The text of a record file, held or not ("" when there is none).
std::string read_record_text(const std::string& path);

}  // namespace perseus::runtime
