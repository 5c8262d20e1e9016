// SPDX-License-Identifier: BSL-1.0
#include <penstock/threads/support/exit_handler.hpp>

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>

#include "support/catch.hpp"
#include "support/in_child.hpp"

namespace ps = penstock;

TEST_CASE("exit() calls the handlers of its thread, newest first, before static destructors",
          "[threads][fault:hangs-8]") {
  CHECK(test::in_child([]() -> int {
          static std::string calls;
          static const struct judge {
            ~judge() { ::_exit(calls == "ba" ? 7 : 1); }
          } at_end;
          const auto handler = [](char name) {
            return ps::detail::exit_handler{[name] { calls += name; }};
          };
          const auto of_this_thread = handler('m');
          std::thread{[&] {
            { const auto over = handler('o'); }
            const auto first = handler('a');
            const auto second = handler('b');
            std::exit(2);
          }}.join();
          return 3;
        }) == 7);
}
