// SPDX-License-Identifier: BSL-1.0
// Runs a fuzz target without a fuzzer, for compilers that have none. Runs every file of the corpus,
// and then RUNS mutated inputs, which are the same in every run.
//
//   penstock_<target>_fuzz CORPUS_FOLDER RUNS
//
// On a finding, the file finding.bin contains the input.
#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using input = std::vector<std::uint8_t>;

std::vector<input> read_corpus(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator{folder}) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<input> corpus;
  for (const auto& path : paths) {
    std::ifstream file{path, std::ios::binary};
    corpus.emplace_back(std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{});
  }
  return corpus;
}

class mutator {
 public:
  explicit mutator(const std::vector<input>& corpus) : corpus_(corpus) {}

  input next() {
    input made = corpus_[below(corpus_.size())];
    for (std::size_t changes = 1 + below(8); changes != 0; --changes) change(made);
    return made;
  }

 private:
  std::size_t below(std::size_t end) { return static_cast<std::size_t>(random_()) % end; }

  void change(input& made) {
    static constexpr std::uint8_t telling[] = {0x00, 0x01, 0x7f, 0x80, 0xff, '{', '"', '=', ' '};
    const std::size_t at = made.empty() ? 0 : below(made.size());
    const auto place = made.begin() + static_cast<std::ptrdiff_t>(at);
    switch (made.empty() ? 4 : below(6)) {
      case 0:
        made[at] = static_cast<std::uint8_t>(made[at] ^ (1U << below(8)));
        break;
      case 1:
        made[at] = telling[below(std::size(telling))];
        break;
      case 2:
        made.resize(at);
        break;
      case 3:
        made.erase(place);
        break;
      case 4:
        made.insert(place, static_cast<std::uint8_t>(below(256)));
        break;
      default: {  // inserts a piece of another input
        const input& other = corpus_[below(corpus_.size())];
        if (other.empty()) break;
        const auto from = static_cast<std::ptrdiff_t>(below(other.size()));
        made.insert(place, other.begin() + from, other.end());
      }
    }
    if (made.size() > 4096) made.resize(4096);
  }

  const std::vector<input>& corpus_;
  std::mt19937_64 random_{1};
};

input tried;

// Saves the input when the target aborts because of a finding.
void keep_finding(int) {
  if (std::FILE* file = std::fopen("finding.bin", "wb")) {
    std::fwrite(tried.data(), 1, tried.size(), file);
    std::fclose(file);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s CORPUS_FOLDER RUNS\n", argv[0]);
    return 2;
  }
  const auto corpus = read_corpus(argv[1]);
  if (corpus.empty()) {
    std::fprintf(stderr, "%s: no corpus in %s\n", argv[0], argv[1]);
    return 2;
  }
  std::signal(SIGABRT, keep_finding);
  for (const input& one : corpus) {
    tried = one;
    LLVMFuzzerTestOneInput(tried.data(), tried.size());
  }
  mutator mutate{corpus};
  const auto runs = std::strtoull(argv[2], nullptr, 10);
  for (unsigned long long run = 0; run < runs; ++run) {
    tried = mutate.next();
    LLVMFuzzerTestOneInput(tried.data(), tried.size());
  }
  std::printf("%zu inputs of the corpus, %llu made of them\n", corpus.size(), runs);
  return 0;
}
