// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/store/local_store.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "ext/store/files.hpp"
#include "ext/store/scripted_ring.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"
#include "support/in_child.hpp"
#include "support/limits.hpp"
#include "support/sanitized.hpp"

namespace ps = penstock;
using test::error_of;

static_assert(ps::batching_store<ps::local_store>);
static_assert(!std::is_copy_constructible_v<ps::local_store>);
static_assert(std::is_nothrow_move_constructible_v<ps::local_store>);

namespace {

using scripted_store = ps::basic_local_store<test::scripted_ring>;

// Files of the relevant lengths: empty, around the block size, and longer than a single read.
class local_files : public test::stored_files {
 public:
  local_files() {
    std::uint32_t seed = 0;
    for (const std::size_t size : {0U, 1U, 4095U, 4096U, 4097U, 70'000U, 1'150'001U}) {
      const std::string name = "d" + std::to_string(seed % 2) + "/" + std::to_string(size);
      contents_[name] = test::some_bytes(size, ++seed);
      add(name, contents_[name]);
    }
  }
  [[nodiscard]] const std::string& content(const std::string& name) const {
    return contents_.at(name);
  }

  // Returns random ranges: whole files, file ends, parts of any length, and nested ranges.
  [[nodiscard]] test::wanted_ranges some(unsigned seed, std::size_t count) const {
    std::mt19937 random{seed};
    test::wanted_ranges wanted;
    for (const auto& [name, text] : contents_) {
      wanted.add(name, 0, text.size());
      wanted.add(name, text.size() - std::min<std::size_t>(text.size(), 5),
                 std::min<std::size_t>(text.size(), 5));
    }
    for (std::size_t i = 0; i < count; ++i) {
      auto at = contents_.begin();
      std::advance(at, random() % contents_.size());
      const std::size_t begin = random() % (at->second.size() + 1);
      const std::size_t max = (std::min)(at->second.size() - begin, std::size_t{9'000});
      wanted.add(at->first, begin, random() % (max + 1));
    }
    return wanted;
  }

  // Returns true if a store reads `count` random ranges correctly.
  template <class Store>
  [[nodiscard]] bool are_read(const Store& store, unsigned seed, std::size_t count = 40) const {
    auto wanted = some(seed, count);
    store.read_many(wanted.ranges());
    return wanted.are_right(*this);
  }
  template <class Store>
  void check_reads(const Store& store, unsigned seed, std::size_t count = 40) const {
    CHECK(are_read(store, seed, count));
  }

  // Removes the files from the page cache as far as the system permits.
  void cool() const {
    ::sync();
    for (const auto& [name, text] : contents_) {
      const int file = ::open(path(name).c_str(), O_RDONLY | O_CLOEXEC);
      (void)::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
      ::close(file);
    }
  }

 private:
  std::map<std::string, std::string> contents_;
};

std::uint64_t pieces(const ps::local_store_stats& stats) {
  return stats.from_page_cache + stats.by_uring + stats.by_threads + stats.by_pread;
}

// A store on a scripted ring that uses direct I/O for all reads. The page cache therefore has no
// influence, and every read uses the ring.
struct on_script {
  std::shared_ptr<test::ring_script> script = std::make_shared<test::ring_script>();
  [[nodiscard]] scripted_store store(const std::string& path, std::size_t depth = 8) const {
    return scripted_store{path,
                          {.engine = ps::read_engine::best, .direct = true, .depth = depth},
                          test::scripted_ring{script}};
  }
};

}  // namespace

TEST_CASE("ranges of files are read correctly by every engine", "[store][promise:honest-9]") {
  const local_files files;
  using engine = ps::read_engine;
  for (const engine by : {engine::best, engine::uring, engine::threads, engine::pread}) {
    for (const bool direct : {false, true}) {
      for (const std::size_t max_open : {1U, 100U}) {
        CAPTURE(static_cast<int>(by), direct, max_open);
        try {
          const ps::local_store store{
              files.path(),
              {.engine = by, .direct = direct, .max_open = max_open, .depth = 4, .threads = 3}};
          CHECK(store.root() == files.path());
          CHECK(store.engine() != engine::best);
          files.cool();
          files.check_reads(store, 1);
          files.check_reads(store, 2);
          CHECK(test::part_of(store, "d0/1150001", 1'048'570, 12) ==
                files.content("d0/1150001").substr(1'048'570, 12));
          CHECK(store.size_of("d0/1150001") == 1'150'001);
          CHECK(store.size_of("d0/0") == 0);
          store.read_many({});
        } catch (const ps::option_error& problem) {
          CHECK(by == engine::uring);
          WARN("not tried: " << problem.what());
        }
      }
    }
  }
}

TEST_CASE("a local store reports its engine and the bytes that each has read",
          "[store][promise:honest-9]") {
  const local_files files;
  const ps::local_store by_threads{files.path(), {.engine = ps::read_engine::threads}};
  CHECK(by_threads.engine() == ps::read_engine::threads);
  CHECK(by_threads.engine_problem().empty());
  test::wanted_ranges wanted;
  wanted.add("d0/1150001", 1'048'575, 2);  // a range that spans two reads
  wanted.add("d1/1", 0, 1);
  wanted.add("d0/0", 0, 0);  // an empty range
  by_threads.read_many(wanted.ranges());
  const auto stats = by_threads.stats();
  CHECK(stats.bytes == 3);
  CHECK(pieces(stats) == 3);
  CHECK(stats.by_uring == 0);
  CHECK(stats.opened == 3);
  (void)test::part_of(by_threads, "d1/1", 0, 1);
  CHECK(by_threads.stats().opened == 3);  // the file is still open

  const on_script on;
  const auto by_ring = on.store(files.path());
  CHECK(by_ring.engine() == ps::read_engine::uring);
  by_ring.read_many(wanted.ranges());
  const auto ring = by_ring.stats();
  if (ring.direct_io_fallbacks == 0) {
    CHECK(ring.by_uring == 3);
    CHECK(ring.from_page_cache == 0);
    CHECK(on.script->reads == 3);
  } else {
    WARN("no direct reads in the folder for temporary files");
  }
  (void)test::part_of(by_ring, "d1/1", 0, 1);  // a single range does not use the ring
  CHECK(pieces(by_ring.stats()) == 4);
  CHECK(on.script->reads <= 3);
}

TEST_CASE("direct reads of whole blocks go straight to where a page begins",
          "[store][promise:honest-9]") {
  const local_files files;
  const std::string& content = files.content("d0/1150001");
  const on_script on;
  const auto store = on.store(files.path());
  constexpr std::size_t page = 4096;
  constexpr std::size_t piece = std::size_t{1} << 20;
  std::vector<std::byte> memory(content.size() + 2 * page);
  const std::uintptr_t begin =
      (reinterpret_cast<std::uintptr_t>(memory.data()) + page - 1) / page * page;
  for (const std::size_t shift : {std::size_t{0}, std::size_t{1}}) {
    auto* const out = reinterpret_cast<std::byte*>(begin) + shift;
    on.script->places.clear();
    const ps::byte_range whole{"d0/1150001", 0, {out, content.size()}};
    store.read_many({&whole, 1});
    CHECK(std::memcmp(out, content.data(), content.size()) == 0);
    if (store.stats().direct_io_fallbacks > 0) continue;
    REQUIRE(on.script->places.size() == 2);
    // The last piece is not a whole block, so it passes through the store's own memory.
    CHECK(std::ranges::count(on.script->places, begin) == (shift == 0 ? 1 : 0));
    CHECK(std::ranges::count(on.script->places, begin + piece) == 0);
  }
}

TEST_CASE("cached pages are read from the page cache", "[store][promise:honest-9]") {
  const local_files files;
  const ps::local_store store{files.path(), {.engine = ps::read_engine::threads}};
  files.check_reads(store, 1, 10);
  files.check_reads(store, 1, 10);
  if (store.stats().from_page_cache == 0) {
    WARN("the file system of temporary files does not know RWF_NOWAIT");
    return;
  }
  const auto before = store.stats();
  files.check_reads(store, 2, 10);
  CHECK(store.stats().by_threads + store.stats().by_pread == before.by_threads + before.by_pread);
}

TEST_CASE("if io_uring is rejected, threads read and the store reports it",
          "[store][fault:stores-2]") {
  const local_files files;
  for (const int reason : {EPERM, ENOSYS, ENOMEM}) {
    const on_script on;
    on.script->set_up = -reason;
    const auto store = on.store(files.path());
    CHECK(store.engine() == ps::read_engine::threads);
    CHECK(test::has(store.engine_problem(), "io_uring is not available: "));
    files.check_reads(store, 3);
    CHECK(store.stats().by_uring == 0);
    const auto problem = error_of<ps::option_error>([&] {
      const scripted_store none{
          files.path(), {.engine = ps::read_engine::uring}, test::scripted_ring{on.script}};
    });
    CHECK(problem.option() == "engine");
    CHECK(test::has(problem.what(), "choose read_engine::best"));
  }
  on_script old;
  old.script->has_single_map = false;
  CHECK(old.store(files.path()).engine() == ps::read_engine::threads);
  CHECK(old.script->open == 0);
  on_script unmapped;
  unmapped.script->maps = false;
  CHECK(unmapped.store(files.path()).engine() == ps::read_engine::threads);
  CHECK(unmapped.script->open == 0);
}

TEST_CASE("a ring has at most its capacity of reads in flight, and none after a call",
          "[store][promise:bounded-10]") {
  const local_files files;
  for (const std::size_t depth : {1U, 3U, 64U}) {
    const on_script on;
    {
      const auto store = on.store(files.path(), depth);
      files.check_reads(store, 4, 200);
      CHECK(on.script->max_under_way <= std::max<unsigned>(1, depth == 3 ? 4 : unsigned(depth)));
      CHECK(on.script->under_way == 0);
      CHECK_FALSE(on.script->lost_a_result);
      CHECK(on.script->open == 1);
    }
    CHECK(on.script->open == 0);
  }
}

TEST_CASE("short reads of a ring are continued", "[store][fault:stores-2]") {
  const local_files files;
  for (const std::size_t max : {4096U, 102'400U}) {
    const on_script on;
    on.script->max_bytes = max;
    const auto store = on.store(files.path());
    files.check_reads(store, 5, 30);
    CHECK(on.script->under_way == 0);
    CHECK((store.stats().by_pread == 0 || store.stats().direct_io_fallbacks > 0));
  }
}

TEST_CASE("if a call of a ring fails, all bytes are still read, and none after the call",
          "[store][fault:stores-2]") {
  const local_files files;
  for (const int error : {EINTR, EAGAIN, EPERM}) {
    for (unsigned failing = 0; failing < 7; ++failing) {
      for (const bool goes_on : {false, true}) {
        // EINTR on every call simulates an endless stream of signals.
        if (error == EINTR && goes_on) continue;
        CAPTURE(error, failing, goes_on);
        const on_script on;
        on.script->max_taken = 3;
        on.script->max_bytes = 40'960;
        on.script->enter = [&](unsigned call) {
          return call == failing || (goes_on && call > failing) ? -error : 0;
        };
        {
          const auto store = on.store(files.path());
          files.check_reads(store, 6, 10);
          CHECK(on.script->under_way == 0);
          files.check_reads(store, 7, 10);
          CHECK(on.script->under_way == 0);
        }
        CHECK_FALSE(on.script->lost_a_result);
        CHECK_FALSE(on.script->left_queued);
      }
    }
  }
}

TEST_CASE("reads that a ring cannot do are done by threads or reported by name",
          "[store][fault:stores-2]") {
  const local_files files;
  for (const int error : {EINVAL, EAGAIN, EIO, EINTR, ECANCELED}) {
    for (unsigned failing = 0; failing < 6; ++failing) {
      const on_script on;
      on.script->read = [&](unsigned read) { return read % 6 == failing ? -error : 0; };
      const auto store = on.store(files.path());
      files.check_reads(store, 8);
      CHECK(on.script->under_way == 0);
      CHECK((store.stats().by_pread > 0 || store.stats().direct_io_fallbacks > 0));
    }
  }
}

TEST_CASE("names, missing files and ranges beyond the end are rejected by type",
          "[store][fault:stores-1]") {
  const local_files files;
  const ps::local_store store{files.path()};
  CHECK_THROWS_AS((void)test::part_of(store, "../secret", 0, 1), ps::object_name_error);
  CHECK_THROWS_AS((void)store.size_of("/etc/passwd"), ps::object_name_error);
  const auto missing = error_of<ps::file_unreadable>([&] { (void)store.size_of("d0/none"); });
  CHECK(missing.path() == files.path("d0/none"));
  CHECK_THROWS_AS(ps::local_store{files.path("none")}, ps::file_unreadable);
  for (const auto& [offset, count] : std::vector<std::pair<std::uint64_t, std::size_t>>{
           {4096, 2}, {4097, 1}, {5000, 0}, {~std::uint64_t{0}, 1}, {~std::uint64_t{0} - 1, 3}}) {
    CAPTURE(offset, count);
    const auto beyond = error_of<ps::file_truncated>(
        [&, from = offset, size = count] { (void)test::part_of(store, "d0/4097", from, size); });
    CHECK(beyond.path() == files.path("d0/4097"));
    CHECK(beyond.offset() == offset);
    CHECK(beyond.expected() == std::to_string(count) + " bytes starting there");
    CHECK(beyond.found() == "an object of 4097 bytes");
  }
  CHECK(test::part_of(store, "d0/4097", 4097, 0).empty());
  files.check_reads(store, 9);  // the store remains usable
}

TEST_CASE("a file that is written to, truncated or replaced is detected",
          "[store][fault:stores-1]") {
  const test::stored_files files;
  const std::string old(10'000, 'o');
  files.add("a", old);
  files.add("b", old);
  for (const bool direct : {false, true}) {
    files.add("a", old);
    const ps::local_store store{files.path(), {.direct = direct, .max_open = 1}};
    CHECK(test::part_of(store, "a", 0, 3) == "ooo");
    SECTION(direct ? "direct: written to" : "written to") {
      files.add("a", std::string(10'000, 'n'));
      files.age("a", 1, 0);
      const auto problem =
          error_of<ps::file_changed>([&] { (void)test::part_of(store, "a", 0, 3); });
      CHECK(problem.path() == files.path("a"));
      CHECK(test::has(problem.found(), "written to since"));
    }
    SECTION(direct ? "direct: truncated" : "truncated") {
      std::filesystem::resize_file(files.path("a"), 5'000);
      const auto problem =
          error_of<ps::file_changed>([&] { (void)test::part_of(store, "a", 4'000, 2'000); });
      CHECK(problem.offset() == 5'000);
      CHECK_THROWS_AS((void)test::part_of(store, "a", 0, 3), ps::file_changed);
    }
    SECTION(direct ? "direct: replaced" : "replaced") {
      std::filesystem::rename(files.path("a"), files.path("was"));
      files.add("a", std::string(10'000, 'n'));
      // The store has the old file open and reads its contents. Reading file "b" closes the old
      // file.
      CHECK(test::part_of(store, "a", 0, 3) == "ooo");
      CHECK(test::part_of(store, "b", 0, 3) == "ooo");
      const auto problem =
          error_of<ps::file_changed>([&] { (void)test::part_of(store, "a", 0, 3); });
      CHECK(test::has(problem.found(), "another file of this name"));
    }
  }
}

TEST_CASE("the error of a batch is that of its first range that has one",
          "[store][fault:stores-1]") {
  const test::stored_files files;
  files.add("a", "old");
  files.add("b", "old");
  const ps::local_store store{files.path()};
  CHECK(test::part_of(store, "a", 0, 3) == "old");
  files.add("a", "longer");
  for (const std::string second : {"b", "none", "../secret"}) {
    CAPTURE(second);
    test::wanted_ranges wanted;
    wanted.add("a", 0, 3);
    wanted.add(second, 1, 3);  // too long, missing, or outside the root
    const auto problem = error_of<ps::file_changed>([&] { store.read_many(wanted.ranges()); });
    CHECK(problem.path() == files.path("a"));
  }
  test::wanted_ranges wanted;
  wanted.add("b", 0, 3);
  wanted.add("b", 1, 3);
  wanted.add("a", 0, 3);
  (void)error_of<ps::file_truncated>([&] { store.read_many(wanted.ranges()); });
}

TEST_CASE("at most the requested number of files stays open", "[store][promise:bounded-10]") {
  const test::stored_files files;
  for (int i = 0; i < 60; ++i) files.add(std::to_string(i), "x");
  for (const bool direct : {false, true}) {
    const std::size_t before = test::open_descriptors();
    const ps::local_store store{
        files.path(), {.engine = ps::read_engine::pread, .direct = direct, .max_open = 7}};
    test::wanted_ranges wanted;
    for (int i = 0; i < 60; ++i) wanted.add(std::to_string(i), 0, 1);
    store.read_many(wanted.ranges());
    store.read_many(wanted.ranges());
    CHECK(test::open_descriptors() - before <= 1 + (direct ? 14 : 7));
    CHECK(store.stats().opened == 120);
    for (int i = 0; i < 20; ++i) (void)test::part_of(store, std::to_string(i % 7), 0, 1);
    CHECK(store.stats().opened == 127);  // the most recently used files stay open
  }
}

TEST_CASE("the error for too many open files names the option to lower",
          "[store][fault:stores-1]") {
  const test::stored_files files;
  for (int i = 0; i < 40; ++i) files.add(std::to_string(i), "x");
  const ps::local_store store{files.path(), {.engine = ps::read_engine::pread}};
  const auto problem = [&] {
    const test::descriptor_limit few{test::open_descriptors() + 10};
    return error_of<ps::file_unreadable>([&] {
      for (int i = 0; i < 40; ++i) (void)test::part_of(store, std::to_string(i), 0, 1);
    });
  }();
  CHECK(test::has(problem.what(), "lower max_open"));
}

TEST_CASE("threads read one store at once", "[store][promise:honest-9]") {
  const local_files files;
  using engine = ps::read_engine;
  for (const engine by : {engine::best, engine::threads}) {
    const ps::local_store store{
        files.path(), {.engine = by, .direct = true, .max_open = 2, .depth = 4, .threads = 2}};
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (unsigned seed = 0; seed < 4; ++seed) {
      threads.emplace_back([&, seed] {
        for (unsigned turn = 0; turn < 5; ++turn) {
          if (!files.are_read(store, 10 * seed + turn, 20)) ++wrong;
        }
      });
    }
    for (std::thread& one : threads) one.join();
    CHECK(wrong == 0);
  }
}

TEST_CASE("a forked child reads with its own ring", "[store][promise:honest-9]") {
  const local_files files;
  const on_script on;
  const auto scripted = on.store(files.path());
  const ps::local_store real{files.path(), {.direct = true}};
  files.check_reads(scripted, 11);
  files.check_reads(real, 11);
  const ::pid_t child = test::fork_to([&] {
    return files.are_read(scripted, 12) && files.are_read(real, 12) &&
                   (on.script->made == 2 || scripted.stats().direct_io_fallbacks > 0)
               ? 0
               : 1;
  });
  files.check_reads(real, 13);
  CHECK(test::end_of(child) == 0);
  files.check_reads(scripted, 14);
  files.check_reads(real, 14);
  CHECK(on.script->made == 1);
}

// A multithreaded child must not start threads under ThreadSanitizer.
#if !defined(PENSTOCK_TEST_THREADS_SANITIZED)
TEST_CASE("a forked child reads with its own threads and ends them", "[store][promise:honest-9]") {
  const local_files files;
  auto store = std::make_unique<ps::local_store>(
      files.path(),
      ps::local_store_options{.engine = ps::read_engine::threads, .direct = true, .threads = 4});
  files.check_reads(*store, 11);
  const ::pid_t child = test::fork_to([&] {
    std::atomic<int> right = 0;
    const auto read = [&] {
      for (unsigned i = 0; i < 3; ++i) right += files.are_read(*store, 12 + i) ? 1 : 0;
    };
    std::thread other{read};
    read();
    other.join();
    store.reset();
    return right == 6 ? 0 : 1;
  });
  files.check_reads(*store, 13);
  CHECK(test::end_of(child) == 0);
  files.check_reads(*store, 14);
  CHECK(test::in_child([&] {
          store.reset();  // the threads belong to the parent
          return 7;
        }) == 7);
  files.check_reads(*store, 15);
}
#endif

TEST_CASE("a store's threads receive no signals of the program", "[store][promise:honest-9]") {
  const local_files files;
  const ps::local_store store{files.path(),
                              {.engine = ps::read_engine::threads, .direct = true, .threads = 3}};
  const auto masks = [] {
    std::map<std::string, std::string> found;
    for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task"}) {
      std::ifstream lines{task.path() / "status"};
      for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("SigBlk:")) found[task.path().filename().string()] = line;
      }
    }
    return found;
  };
  const auto before = masks();
  files.check_reads(store, 16);
  const auto after = masks();
  CHECK(after.size() > before.size());
  for (const auto& [task, blocked] : after) {
    if (const auto former = before.find(task); former != before.end()) {
      CHECK(blocked == former->second);
      continue;
    }
    CAPTURE(task, blocked);
    const auto bits = std::stoull(blocked.substr(blocked.find('\t')), nullptr, 16);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGALRM, SIGCHLD}) {
      CHECK((bits >> (signal - 1) & 1U) == 1U);
    }
  }
}

TEST_CASE("a local store can be moved and rejects meaningless options", "[store]") {
  const local_files files;
  ps::local_store first{files.path()};
  const ps::local_store second{std::move(first)};
  files.check_reads(second, 15, 5);
  const auto rejected = [&](const ps::local_store_options& options) {
    return error_of<ps::option_error>([&] { const ps::local_store none{files.path(), options}; })
        .option();
  };
  CHECK(rejected({.max_open = 0}) == "max_open");
  CHECK(rejected({.depth = 0}) == "depth");
  CHECK(rejected({.depth = 4097}) == "depth");
  CHECK(rejected({.threads = 0}) == "threads");
  CHECK(rejected({.threads = 1025}) == "threads");
}
