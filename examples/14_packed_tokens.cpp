// SPDX-License-Identifier: BSL-1.0
// Packs whole documents into rows of tokens, for models whose attention stays within a document.
// The rows are the same for any number of workers. The argument is the prefix of Megatron's .bin
// and .idx files with 16 bits per token. Without an argument the program creates documents. If the
// argument is a flat file of tokens, FILE.bin as written by nanoGPT, it is cut into windows
// instead. --digest reads in order and prints the SHA-256 of each field over all rows.
#include <penstock/penstock.hpp>
#include <penstock_ext/samplers/block_shuffled.hpp>
#include <penstock_ext/text/megatron_documents.hpp>
#include <penstock_ext/text/packed_documents.hpp>
#include <penstock_ext/text/token_windows.hpp>

#include <exception>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "data/read_all.hpp"
#include "text/made_documents.hpp"

namespace ps = penstock;

int main(int argc, char** argv) try {
  auto [arguments, digest] = data::arguments_of(argc, argv);
  std::optional<text::made_documents> made;
  if (arguments.empty()) arguments.push_back(made.emplace().prefix());

  if (arguments.front().ends_with(".bin")) {
    const ps::token_windows windows{arguments.front(), {.length = 1024}};
    data::read_all(windows, ps::shuffled{.seed = 1}, digest, 8);
    return 0;
  }
  const ps::megatron_documents documents{arguments.front()};
  const auto rows = ps::pack_documents(documents, {.length = 2048, .seed = 1});
  std::cout << documents.size() << " documents in " << rows.size() << " rows, "
            << static_cast<int>(rows.fill() * 1000) / 10.0 << " % full\n";
  data::read_all(rows, ps::block_shuffled{.seed = 1, .block = rows.window_rows()}, digest, 8);
} catch (const std::exception& problem) {
  std::cerr << "14_packed_tokens: " << problem.what() << '\n';
  return 1;
}
