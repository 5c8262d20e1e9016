// SPDX-License-Identifier: BSL-1.0
// Uploads weights, trains them, and saves them every ten steps while the next steps run. A run that
// is killed at any point can continue from the last complete checkpoint.
//
// penstock_23_checkpoint FILE trains for 100 steps, with FILE as its checkpoint
//
// Without arguments, the program kills a first run during a checkpoint. The program then checks
// that a second run ends with the weights of an uninterrupted run.
#include "images/made_pnm_folder.hpp"

#include <penstock/device/cpu_device.hpp>
#include <penstock_ext/bulk/bulk_copier.hpp>
#include <penstock_ext/bulk/safetensors/safetensors.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace ps = penstock;

void require(bool is_so, const char* problem) {
  if (!is_so) throw std::runtime_error(problem);
}

std::vector<float> train(const std::string& file, std::uint64_t steps, std::uint64_t killed_at) {
  const ps::cpu_device device;
  std::vector<float> weights(300'000, 1.0F);  // the memory of the CPU device
  const auto stream = device.make_stream();
  const auto bytes = std::as_writable_bytes(std::span{weights});
  // The snapshot is a copy on the device, so the next step may already change the weights.
  ps::bulk_copier copier{device, {.workers = 2, .piece_bytes = 1 << 16, .snapshot = true}};

  std::uint64_t step = 0;
  if (std::filesystem::exists(file)) {
    const ps::safetensors_file saved{file};
    require(saved.has_checksum(), "a checkpoint without a sum");
    copier.upload(stream, bytes, saved.all()).wait();  // throws if the file is damaged
    step = std::stoull(saved.metadata().at("step"));
  }
  ps::bulk_transfer<ps::cpu_device> saving;
  while (step < steps) {
    ++step;
    stream.launch([all = std::span{weights}, step] {
      for (std::size_t i = 0; i < all.size(); ++i)
        all[i] += 1.0F / static_cast<float>(i % 7 + step);
    });
    if (step % 10 != 0) continue;
    saving.wait();  // waits for the previous checkpoint, unless `done()` is true
    saving =
        copier.download(stream,
                        ps::safetensors_sink{file,
                                             {{.name = "w", .dtype = "F32", .shape = {300'000}}},
                                             {{"step", std::to_string(step)}}},
                        bytes);
    if (step == killed_at) std::raise(SIGKILL);
  }
  saving.wait();
  stream.synchronize();
  return weights;
}

int main(int argc, char** argv) {
  if (argc == 2) return train(argv[1], 100, 0), 0;
  const images::own_folder out{"penstock-checkpoint"};
  const auto expected = train(out.path() / "once", 100, 0);
  if (::fork() == 0) train(out.path() / "twice", 100, 60);
  int status = 0;
  require(::wait(&status) > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
          "the first run was not killed");
  const ps::safetensors_file left{out.path() / "twice"};
  require(left.metadata().at("step") == "50" || left.metadata().at("step") == "60", "another step");
  require(train(out.path() / "twice", 100, 0) == expected, "the weights differ");
  std::cout << "killed at step 60, gone on from step " << left.metadata().at("step")
            << ": the same weights\n";
}
