// SPDX-License-Identifier: BSL-1.0
// The example's store beside PyTorch's:
//
//   store_peer serve        prints its port, and serves until standard input ends
//   store_peer ask PORT     asks a store on this machine, and prints what it says
#include <charconv>
#include <chrono>
#include <cstdint>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>

#include "ranks/tcp/store_server.hpp"
#include "ranks/tcp/tcp_store.hpp"

namespace {

int serve() {
  const mlp::store_server server{0};
  std::cout << server.port() << std::endl;
  std::cin.ignore(1 << 20, '\0');
  return 0;
}

int ask(std::uint16_t port) {
  mlp::tcp_store store{{"localhost", port}, std::chrono::seconds{60}};
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  store.set("from_cpp", all);
  std::cout << "sum " << store.add("sum", 5) << std::endl;
  const std::string found = store.get("from_python");
  store.wait("waited_for");
  // As long as a value may be.
  store.set("long", std::string(mlp::most_value_bytes, 'v'));
  std::cout << "found " << found.size() << ' ' << (found == std::string{all.rbegin(), all.rend()})
            << ' ' << store.get("long").size() << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string_view what = argc > 1 ? argv[1] : "";
    if (what == "serve") return serve();
    std::uint16_t port = 0;
    const std::string_view text = argc > 2 ? argv[2] : "";
    std::from_chars(text.data(), text.data() + text.size(), port);
    return what == "ask" && port != 0 ? ask(port) : 2;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
