#include "zeusd.hpp"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "gpu_control.hpp"

namespace perseus::runtime {
namespace {

constexpr timeval answer_timeout{5, 0};

/// A connected socket, or -1.
int connect_to(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return -1;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &answer_timeout, sizeof answer_timeout);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &answer_timeout, sizeof answer_timeout);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

bool send_all(int fd, const std::string& text) {
  std::size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t n = send(fd, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += static_cast<std::size_t>(n);
  }
  return true;
}

std::string receive_all(int fd) {
  std::string text;
  char buffer[1024];
  for (ssize_t n = recv(fd, buffer, sizeof buffer, 0); n > 0; n = recv(fd, buffer, sizeof buffer, 0)) {
    text.append(buffer, static_cast<std::size_t>(n));
  }
  return text;
}

/// "HTTP/1.1 200 OK..." -> 200; 0 when it is no answer.
int status_of(const std::string& answer) {
  if (answer.rfind("HTTP/1.", 0) != 0 || answer.size() < 12) return 0;
  return std::atoi(answer.c_str() + 9);
}

}  // namespace

int code_of_status(int status) {
  switch (status) {
    case 200: return code_success;
    case 400: return code_invalid_argument;
    case 401:
    case 403: return code_no_permission;
    case 404: return code_not_supported;
    case 0: return code_driver_not_loaded;
    default: return code_unknown;
  }
}

int Zeusd::post(const std::string& action, const std::string& arguments) const {
  const int fd = connect_to(socket_path_);
  if (fd < 0) return code_driver_not_loaded;
  std::string request = "POST /gpu/" + action + "?gpu_ids=" + std::to_string(gpu_) + arguments + "&block=true HTTP/1.1\r\n";
  request += "Host: zeusd\r\nContent-Length: 0\r\nConnection: close\r\n";
  if (!token_.empty()) request += "Authorization: Bearer " + token_ + "\r\n";
  const std::string answer = send_all(fd, request + "\r\n") ? receive_all(fd) : std::string();
  close(fd);
  return code_of_status(status_of(answer));
}

}  // namespace perseus::runtime
