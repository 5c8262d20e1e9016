// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/files/state_file.hpp>

#include <sys/types.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <string>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/in_child.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;
using test::error_of;

namespace {

ps::loader_state state_at(std::uint64_t batch) {
  return {.epoch = 3, .batch = batch, .dataset = 100, .samples = 100, .batch_size = 8};
}

// Forks a child process that runs `work(pipe)`. Returns as soon as the child has written to the
// pipe.
template <class Work>
::pid_t writer(const Work& work) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const ::pid_t child = test::fork_to([&] {
    work(ends[1]);
    return 1;
  });
  ::close(ends[1]);
  char byte = 0;
  CHECK(::read(ends[0], &byte, 1) == 1);
  ::close(ends[0]);
  return child;
}

void end(::pid_t child) {
  ::kill(child, SIGKILL);
  CHECK(test::end_of(child) == -SIGKILL);
}

}  // namespace

TEST_CASE("a saved state is loaded again", "[files][promise:honest-21]") {
  const test::temp_dir dir;
  const std::string path = dir.path("loader.state");
  ps::save_state(path, state_at(1));
  ps::save_state(path, state_at(17));
  CHECK(ps::load_state(path) == state_at(17));
  CHECK(test::files_in(dir) == 1);
}

TEST_CASE("a state that can't be saved or loaded is named", "[files]") {
  const test::temp_dir dir;
  const std::string path = dir.path("none/loader.state");
  CHECK(error_of<ps::file_unwritable>([&] { ps::save_state(path, state_at(1)); }).path() == path);
  CHECK(error_of<ps::file_unreadable>([&] { (void)ps::load_state(path); }).path() == path);
  const std::string empty = dir.write("empty", {});
  CHECK(error_of<ps::file_format_error>([&] { (void)ps::load_state(empty); }).path() == empty);
  const std::string long_one = dir.write("long", test::file_bytes(5000, ' '));
  CHECK(error_of<ps::file_format_error>([&] { (void)ps::load_state(long_one); }).offset() == 4096);
}

TEST_CASE("a killed process leaves a complete state", "[files][promise:honest-21]") {
  const test::temp_dir dir;
  const std::string path = dir.path("loader.state");
  for (int times = 0; times < 20; ++times) {
    end(writer([&](int pipe) {
      for (std::uint64_t batch = 0;; ++batch) {
        ps::save_state(path, state_at(batch));
        if (batch == 0 && ::write(pipe, "x", 1) != 1) return;
      }
    }));
    CHECK(ps::load_state(path).epoch == 3);
  }
  ps::save_state(path, state_at(5));
  CHECK(ps::load_state(path) == state_at(5));
  CHECK(test::files_in(dir) == 1);
}

TEST_CASE("only parts whose writers are gone are removed", "[files][promise:honest-21]") {
  const test::temp_dir dir;
  const std::string path = dir.path("loader.state");
  std::string part;
  const ::pid_t child = writer([&](int pipe) {
    const auto file = ps::detail::open_part(path, part);
    if (file.get() >= 0 && ::write(pipe, "x", 1) == 1) ::pause();
  });
  dir.write("loader.state.part-x-1", {1});
  dir.write("loader.state.part-1", {1});
  dir.write("other.state.part-1-1", {1});
  ps::save_state(path, state_at(1));
  CHECK(test::files_in(dir) == 5);
  end(child);
  ps::save_state(path, state_at(2));
  CHECK(test::files_in(dir) == 4);
}
