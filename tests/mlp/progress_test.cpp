// SPDX-License-Identifier: BSL-1.0
#include "progress.hpp"

#include <fcntl.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "support/catch.hpp"

namespace {

/// Standard output is a terminal for a scope, and what is written there is read.
class terminal {
 public:
  /// With `is_pipe` it is a pipe.
  explicit terminal(bool is_pipe = false) {
    int theirs = -1;
    if (is_pipe) {
      std::array<int, 2> ends{-1, -1};
      if (::pipe(ends.data()) != 0) return;
      ours_ = ends[0];
      theirs = ends[1];
    } else {
      ours_ = ::posix_openpt(O_RDWR | O_NOCTTY);
      if (ours_ < 0 || ::grantpt(ours_) != 0 || ::unlockpt(ours_) != 0) return;
      theirs = ::open(::ptsname(ours_), O_RDWR | O_NOCTTY);
    }
    if (theirs < 0) return;
    std::fflush(stdout);
    before_ = ::dup(STDOUT_FILENO);
    is_there_ = ::dup2(theirs, STDOUT_FILENO) == STDOUT_FILENO;
    ::close(theirs);
    ::fcntl(ours_, F_SETFL, O_NONBLOCK);
  }
  terminal(terminal&&) = delete;
  ~terminal() {
    std::fflush(stdout);
    if (before_ >= 0) {
      ::dup2(before_, STDOUT_FILENO);
      ::close(before_);
    }
    if (ours_ >= 0) ::close(ours_);
  }
  [[nodiscard]] bool is_there() const { return is_there_; }
  /// All that was written so far.
  [[nodiscard]] const std::string& text() {
    std::array<char, 4096> part{};
    for (;;) {
      const auto count = ::read(ours_, part.data(), part.size());
      if (count <= 0) return text_;
      text_.append(part.data(), static_cast<std::size_t>(count));
    }
  }

 private:
  int ours_ = -1;
  int before_ = -1;
  bool is_there_ = false;
  std::string text_;
};

/// A variable of the environment for a scope; none for a null value.
class scoped_variable {
 public:
  scoped_variable(const char* name, const char* value) : name_(name) {
    if (const char* const old = std::getenv(name)) before_ = old;
    set(value);
  }
  scoped_variable(scoped_variable&&) = delete;
  ~scoped_variable() { set(before_ ? before_->c_str() : nullptr); }

 private:
  void set(const char* value) const {
    if (value == nullptr) {
      ::unsetenv(name_);
    } else {
      ::setenv(name_, value, 1);
    }
  }
  const char* name_;
  std::optional<std::string> before_;
};

/// What a loop of three steps writes to a terminal; nothing where there is none.
std::optional<std::string> written_by(bool shown, bool to_pipe = false) {
  terminal out{to_pipe};
  if (!out.is_there()) return std::nullopt;
  {
    mlp::progress_bar progress{"serial", 3, {.shown = shown}};
    progress.begin();
    for (int step = 0; step < 3; ++step) progress.advance();
  }
  std::fflush(stdout);
  return out.text();
}

}  // namespace

TEST_CASE("a progress line is drawn on a terminal, again and again, and erased", "[mlp]") {
  const scoped_variable no_ci{"CI", nullptr};
  const scoped_variable of_a_window{"TERM", "xterm"};
  std::string text;
  {
    terminal out;
    if (!out.is_there() || !mlp::is_watched()) {
      WARN("not tested: there are no terminals here");
      return;
    }
    {
      mlp::progress_bar progress{"serial", std::size_t{1} << 62};
      progress.begin();
      // A line that has a rate, and so is another than the first, comes if steps go on.
      while (out.text().find("batches/s") == std::string::npos) progress.advance();
    }
    text = out.text();
  }
  CHECK(text.rfind("\rserial       0 % [....................]\033[K\rserial ", 0) == 0);
  const std::string erased = "\r\033[K";
  CHECK(text.size() > erased.size());
  CHECK(text.substr(text.size() - erased.size()) == erased);
}

TEST_CASE("there is no progress line for a log, and none where it is not wanted", "[mlp]") {
  const scoped_variable no_ci{"CI", nullptr};
  const scoped_variable of_a_window{"TERM", "xterm"};
  if (!written_by(true)) {
    WARN("not tested: there are no terminals here");
    return;
  }
  CHECK_FALSE(written_by(true)->empty());
  CHECK(written_by(false)->empty());
  CHECK(written_by(true, true)->empty());
  {
    const scoped_variable ci{"CI", "true"};
    CHECK(written_by(true)->empty());
  }
  const scoped_variable dumb{"TERM", "dumb"};
  CHECK(written_by(true)->empty());
}
