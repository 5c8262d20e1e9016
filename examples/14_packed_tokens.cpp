// SPDX-License-Identifier: BSL-1.0
// Whole documents packed into rows of tokens, for models whose attention stays within documents:
// the rows are the same for any workers. Argument: the prefix of Megatron's .bin and .idx, 16 bits a
// token; without one, documents are made. --digest reads in order, and prints the SHA-256 of
// the fields of all rows.
#include <penstock/penstock.hpp>
#include <penstock/text/megatron_documents.hpp>
#include <penstock/text/packed_documents.hpp>

#include <exception>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "mlp/lab/sha256.hpp"
#include "text/made_documents.hpp"

namespace ps = penstock;

template <class Rows, class Sampler>
void read_all(const Rows& rows, const Sampler& order, bool digest) {
  ps::loader loader{rows, order, {.batch_size = 8, .workers = 4}};
  mlp::sha256 tokens, labels, ends;
  std::size_t read = 0;
  for (auto& batch : loader.epoch(0)) {
    read += batch.size();
    if (!digest) continue;
    tokens.add(std::as_bytes(ps::get<"tokens">(batch).flat()));
    labels.add(std::as_bytes(ps::get<"labels">(batch).flat()));
    ends.add(std::as_bytes(ps::get<"cu_seqlens">(batch).flat()));
  }
  std::cout << read << " rows read\n";
  if (!digest) return;
  std::cout << "tokens " << tokens.finish() << "\nlabels " << labels.finish() << "\ncu_seqlens "
            << ends.finish() << '\n';
}

int main(int argc, char** argv) try {
  std::vector<std::string> arguments{argv + 1, argv + argc};
  const bool digest = std::erase(arguments, "--digest") > 0;
  std::optional<text::made_documents> made;
  if (arguments.empty()) arguments.push_back(made.emplace().prefix());

  const ps::megatron_documents documents{arguments.front()};
  const auto rows = ps::pack_documents(documents, {.length = 2048, .seed = 1});
  std::cout << documents.size() << " documents in " << rows.size() << " rows, "
            << static_cast<int>(rows.fill() * 1000) / 10.0 << " % full\n";
  if (digest) {
    read_all(rows, ps::sequential{}, digest);
  } else {
    read_all(rows, ps::block_shuffled{.seed = 1, .block = rows.window_rows()}, digest);
  }
} catch (const std::exception& problem) {
  std::cerr << "14_packed_tokens: " << problem.what() << '\n';
  return 1;
}
