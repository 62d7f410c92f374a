// A client of zeusd, the daemon that sets GPUs for programs without the right to: one HTTP POST a setting
// over its Unix socket.
#pragma once

#include <string>
#include <utility>

namespace perseus::runtime {

class Zeusd {
 public:
  Zeusd(std::string socket_path, std::string token, int gpu)
      : socket_path_(std::move(socket_path)), token_(std::move(token)), gpu_(gpu) {}

  /// `POST /gpu/<action>?gpu_ids=<gpu>&<arguments>&block=true`; an NVML code for the daemon's answer.
  int post(const std::string& action, const std::string& arguments) const;

 private:
  std::string socket_path_;
  std::string token_;
  int gpu_;
};

/// The NVML code that stands for an HTTP status of the daemon.
int code_of_status(int status);

}  // namespace perseus::runtime
