// SPDX-License-Identifier: BSL-1.0
// Computes embeddings for a folder of images. Workers decode, a device computes, and a thread
// writes the results while the next steps run. A run that is killed at any point can be resumed,
// and each image gets exactly one row. `penstock_22_embeddings FOLDER OUT` writes OUT.npy (one row
// per file) and OUT.txt (the file names). Without arguments the program creates a folder, kills a
// first run halfway, and checks the output of a second run.
#include "images/made_pnm_folder.hpp"
#include "images/pnm_decoder.hpp"

#include <penstock/penstock.hpp>
#include <penstock_ext/blob/image_folder.hpp>
#include <penstock_ext/image/crop.hpp>
#include <penstock_ext/image/decode.hpp>
#include <penstock_ext/results/results.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace ps = penstock;
using embedding = ps::record<ps::field<"vector", float, 3>>;
constexpr std::streamoff row_bytes = 3 * sizeof(float), head_bytes = 128;

void require(bool is_so, const char* problem) {
  if (!is_so) throw std::runtime_error(problem);
}
std::string content_of(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  return (std::ostringstream{} << file.rdbuf()).str();
}

// Computes the embeddings. The run is killed after the rows of batch `killed_after` have been
// written.
void embed(const std::string& folder, const std::string& out, std::uint64_t killed_after = ~0ULL) {
  const ps::image_folder files{folder};
  ps::loader_options options{.batch_size = 8, .instrumentation = {.indices = true}};
  options.faults.on_error = {.action = ps::error_action::skip, .max_failure_rate = 1};
  ps::loader loader{files | ps::decode_images<images::pnm_decoder>(ps::center_crop{24}),
                    ps::sequential{}, options};
  ps::transfer feed{loader};
  std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (";
  text += std::to_string(files.size()) + ", 3), }";
  text.resize(head_bytes - 11, ' ');
  std::ofstream{out + ".npy", std::ios::app};  // creates the file if it does not exist
  std::fstream rows{out + ".npy", std::ios::in | std::ios::out | std::ios::binary};
  rows << std::string{"\x93NUMPY\x01\0\x76\0", 10} << text << '\n' << std::flush;
  std::filesystem::resize_file(out + ".npy", head_bytes + row_bytes * files.size());
  std::ofstream names{out + ".txt"};
  for (std::uint64_t i = 0; i < files.size(); ++i) names << files.key(i) << '\n';
  // A single worker writes batch after batch in order. Each row has a fixed position in the file,
  // so writing a row twice is harmless.
  ps::results<embedding> results{
      ps::cpu_device{}, 8, [&](const auto& done) {
        for (std::size_t i = 0; i < done.size(); ++i) {
          rows.seekp(head_bytes + row_bytes * static_cast<std::streamoff>(done.indices()[i]));
          rows.write(reinterpret_cast<const char*>(&ps::get<"vector">(done)(i, 0)), row_bytes);
        }
        std::ofstream next{out + ".new"};
        next << loader.state_at({done.epoch(), done.number() + 1});
        require(rows.flush() && next.flush(), "the rows or the state can't be written");
        // Atomic, and executed only after the rows have been written.
        std::filesystem::rename(out + ".new", out + ".state");
        if (done.number() == killed_after) std::raise(SIGKILL);
      }};
  auto at = loader.state_at({0, 0});
  const std::string state = content_of(out + ".state");
  if (!state.empty()) at = ps::from_text<ps::loader_state>(state);
  for (auto& [batch, slot] : ps::zip_results(feed.resume(at, 1), results)) {
    const auto image = ps::get<"image">(batch);
    const auto vector = ps::get<"vector">(slot);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      for (std::size_t c = 0; c < 3; ++c) {  // the mean of each color, instead of a network
        vector(i, c) = 0;
        for (std::size_t p = 0; p < 576; ++p) vector(i, c) += image(i, p / 24, p % 24, c) / 576.0F;
      }
    }
  }
  results.close();  // throws unless all rows have been written
}

int main(int argc, char** argv) {
  if (argc == 3) return embed(argv[1], argv[2]), 0;
  const images::made_pnm_folder folder{118};
  const images::own_folder out{"penstock-embeddings"};
  const std::string once = out.path() / "once", twice = out.path() / "twice";
  embed(folder.path(), once);
  if (::fork() == 0) embed(folder.path(), twice, 6);
  int status = 0;
  require(::wait(&status) > 0 && WIFSIGNALED(status), "the first run was not killed");
  require(content_of(twice + ".npy") != content_of(once + ".npy"), "no row is missing then");
  embed(folder.path(), twice);
  require(content_of(twice + ".npy") == content_of(once + ".npy"), "the rows differ");
  std::cout << "killed and run again: the same rows\n";
}
