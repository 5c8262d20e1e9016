// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock/threads/support/signals_blocked.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/system_file.hpp>
#include <penstock_ext/store/byte_store.hpp>
#include <penstock_ext/store/detail/root_folder.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A read of a file that is to be done, is under way or has ended. The descriptor and the memory
/// are the caller's.
struct file_read {
  int file = -1;
  std::uint64_t offset = 0;
  std::byte* out = nullptr;
  std::size_t size = 0;
  std::size_t enough = 0;  ///< how many bytes of it are needed: the file may end after them
  std::size_t done = 0;    ///< how many bytes have been read
  int error = 0;  ///< the system's number of what went wrong; 0 also at the end of the file

  /// Whether all that is needed has been read.
  [[nodiscard]] bool is_whole() const noexcept { return done >= enough; }
};

/// Reads what is left of `read`, and waits for it, unless `flags` of preadv2 say else. At the end
/// of the file, and after an error, there is something left.
inline void read_rest(file_read& read, int flags = 0) noexcept {
  read.error = 0;
  while (!read.is_whole()) {
    const ::iovec to{read.out + read.done, read.size - read.done};
    const ssize_t count =
        ::preadv2(read.file, &to, 1, static_cast<off_t>(read.offset + read.done), flags);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) read.error = errno;
    if (count <= 0) return;
    read.done += static_cast<std::size_t>(count);
  }
}

/// Reads what the system has in memory from the start of `read` on, and waits for nothing. One call
/// tells and reads, on file systems that know RWF_NOWAIT; on others nothing is read.
inline void read_cached(file_read& read) noexcept { read_rest(read, RWF_NOWAIT); }

/// The system's calls for an io_uring, as `read_ring` makes them; a test has others. Results below
/// 0 are the system's number of what went wrong.
struct ring_calls {
  /// Makes a ring; its descriptor.
  [[nodiscard]] int set_up(unsigned entries, ::io_uring_params& params) const noexcept {
    return result(::syscall(SYS_io_uring_setup, entries, &params));
  }
  /// Hands over up to `queued` reads, then waits until `least` results are there; how many were
  /// handed over.
  [[nodiscard]] int enter(int ring, unsigned queued, unsigned least) const noexcept {
    const unsigned flags = least > 0 ? IORING_ENTER_GETEVENTS : 0;
    return result(::syscall(SYS_io_uring_enter, ring, queued, least, flags, nullptr, 0));
  }
  /// The ring's shared memory at `offset`; null where it is refused.
  [[nodiscard]] void* map(int ring, std::size_t bytes, std::uint64_t offset) const noexcept {
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring,
                            static_cast<off_t>(offset));
    return at == MAP_FAILED ? nullptr : at;
  }
  /// Gives it back.
  void unmap(void* at, std::size_t bytes) const noexcept { ::munmap(at, bytes); }
  /// Waits for a result where `enter` can't.
  void wait(int ring) const noexcept {
    ::pollfd one{ring, POLLIN, 0};
    static_cast<void>(::poll(&one, 1, -1));
  }
  /// Ends the ring.
  void close(int ring) const noexcept { ::close(ring); }

 private:
  [[nodiscard]] static int result(long value) noexcept {
    return value < 0 ? -errno : static_cast<int>(value);
  }
};

/// A file of a `local_store`, open for reading.
struct open_file_pair {
  descriptor cached;  ///< reads by way of the page cache
  descriptor direct;  ///< reads past it; none (below 0) where that was not asked for or is refused
  file_stamp stamp;   ///< the file as it was when it was first opened

  /// How many bytes it has.
  [[nodiscard]] std::uint64_t size() const noexcept { return stamp.size; }
};

/// The files of a `local_store`: those used last stay open, up to a number, and those that a call
/// still reads. A file is recognised when it is opened again: 150 bytes and the name for each that
/// has ever been open. Thread-safe.
class open_files {
 public:
  using file = std::shared_ptr<const open_file_pair>;

  /// Opens files below `root`, and keeps `most` of them open, 1 or more.
  open_files(root_folder root, std::size_t most, bool direct)
      : root_(std::move(root)), most_(most), direct_(direct) {}
  open_files(open_files&&) = delete;

  /// The folder.
  [[nodiscard]] const root_folder& root() const noexcept { return root_; }
  /// How often a file was opened.
  [[nodiscard]] std::uint64_t opened() const noexcept {
    return opened_.load(std::memory_order_relaxed);
  }
  /// How often a file was opened that has no direct reads.
  [[nodiscard]] std::uint64_t direct_refused() const noexcept {
    return direct_refused_.load(std::memory_order_relaxed);
  }

  /// The file `name`; it stays open while the result lives. Throws what `root_folder::open` throws,
  /// and `file_changed` where it is not the file that it was.
  [[nodiscard]] file open(std::string_view name) {
    {
      const std::lock_guard lock{mutex_};
      const auto known = entries_.find(name);
      if (known != entries_.end() && known->second.opened) return use(known->second);
    }
    // Not under the lock: a slow file system keeps nobody from the files that are open.
    auto opened = std::make_shared<open_file_pair>(open_pair(name));
    std::list<entry*> place(1);  // allocated where nothing has happened yet
    const std::lock_guard lock{mutex_};
    const auto [known, is_new] = entries_.try_emplace(std::string{name});
    entry& one = known->second;
    if (is_new) one.stamp = opened->stamp;
    if (one.stamp != opened->stamp) {
      refuse(name, one.stamp, opened->stamp);
    }
    if (one.opened) return use(one);  // another thread was faster
    if (last_used_.size() >= most_) {
      last_used_.back()->opened.reset();
      last_used_.pop_back();
    }
    one.opened = std::move(opened);
    place.front() = &one;
    last_used_.splice(last_used_.begin(), place);
    one.place = last_used_.begin();
    return one.opened;
  }

  /// Throws `file_changed` where `one`, the file `name`, is not as it was.
  void require_unchanged(std::string_view name, const open_file_pair& one) const {
    const file_stamp now = stamp_of(name, one.cached);
    if (now != one.stamp) refuse(name, one.stamp, now);
  }

 private:
  struct entry {
    file_stamp stamp = {};
    file opened = nullptr;                   // null: closed
    std::list<entry*>::iterator place = {};  // in `last_used_`, while it is open
  };

  [[noreturn]] void refuse(std::string_view name, const file_stamp& was,
                           const file_stamp& now) const {
    const bool is_same = now.device == was.device && now.inode == was.inode;
    throw file_changed(
        root_.path_of(name), 0, "the file as it was when the store first opened it",
        std::string{is_same ? "one that was written to since" : "another file of this name"} +
            ": make a new store when all files are whole");
  }

  [[nodiscard]] file_stamp stamp_of(std::string_view name, const descriptor& of) const {
    struct ::stat status {};
    if (::fstat(of.get(), &status) != 0) {
      throw file_unreadable(root_.path_of(name), 0, "a readable file", system_reason());
    }
    return file_stamp_of(status);
  }

  [[nodiscard]] const file& use(entry& one) {
    last_used_.splice(last_used_.begin(), last_used_, one.place);
    return one.opened;
  }

  [[nodiscard]] open_file_pair open_pair(std::string_view name) {
    open_file_pair pair{root_.open(name), descriptor{-1}, {}};
    pair.stamp = stamp_of(name, pair.cached);
    // Relaxed, here and below: they only count.
    opened_.fetch_add(1, std::memory_order_relaxed);
    if (!direct_) return pair;
    // EINVAL: the file system has no direct reads.
    pair.direct = root_.open(name, O_DIRECT, EINVAL);
    if (pair.direct.get() < 0) {
      direct_refused_.fetch_add(1, std::memory_order_relaxed);
      return pair;
    }
    const file_stamp now = stamp_of(name, pair.direct);
    if (now != pair.stamp) refuse(name, pair.stamp, now);  // replaced between the two
    return pair;
  }

  const root_folder root_;
  const std::size_t most_;
  const bool direct_;
  std::atomic<std::uint64_t> opened_{0};
  std::atomic<std::uint64_t> direct_refused_{0};
  std::mutex mutex_;  // guards what follows; held for no call of the system but closing
  std::unordered_map<std::string, entry, name_hash, std::equal_to<>> entries_;
  std::list<entry*> last_used_;  // those that are open, the one used last in front
};

/// Threads that read files for callers, which read along. They start when they are first
/// needed, without the program's signals. From any thread, in a child made by fork() too: there
/// are other threads then.
class read_threads {
 public:
  /// At most `most` threads.
  explicit read_threads(std::size_t most) : most_(most) {}
  read_threads(read_threads&&) = delete;
  ~read_threads() {
    pool* const last = pool_.load(std::memory_order_acquire);
    if (last != nullptr && last->process == ::getpid()) delete last;
  }

  /// Reads all of `reads`, and returns when none is under way any more. Those that could not be
  /// read are not whole then.
  void read(std::span<file_read> reads) {
    if (!reads.empty()) pool_of_process().read(reads, most_);
  }

 private:
  struct job {
    std::span<file_read> reads;
    std::size_t next = 0;
    std::size_t under_way = 0;
    std::condition_variable ended = {};
  };

  // Invariant, under the mutex: a job is in `jobs` as long as it has a read that nobody has taken.
  // So no thread finds a job that its caller has left: it leaves when all are taken and none is
  // under way.
  struct pool {
    const ::pid_t process = ::getpid();
    std::mutex mutex = {};  // guards what follows; held for no read
    std::condition_variable wanted = {};
    std::vector<job*> jobs = {};
    std::vector<std::thread> threads = {};
    bool refused = false;
    bool ends = false;

    ~pool() {
      {
        const std::lock_guard lock{mutex};
        ends = true;
      }
      wanted.notify_all();
      for (std::thread& one : threads) one.join();
    }

    void read(std::span<file_read> reads, std::size_t most) {
      std::unique_lock lock{mutex};
      start((std::min)(most, reads.size() - 1));
      job mine{reads};
      jobs.push_back(&mine);
      wanted.notify_all();
      while (mine.next < reads.size()) read_one(lock, mine);
      mine.ended.wait(lock, [&] { return mine.under_way == 0; });
    }

    void start(std::size_t count) {
      if (refused || threads.size() >= count) return;
      const signals_blocked while_they_start;
      try {
        while (threads.size() < count) threads.emplace_back([this] { work(); });
      } catch (const std::system_error&) {
        refused = true;  // fewer threads do the same work
      }
    }

    void read_one(std::unique_lock<std::mutex>& lock, job& from) {
      file_read& read = from.reads[from.next];
      ++from.next;
      ++from.under_way;
      if (from.next == from.reads.size()) std::erase(jobs, &from);
      lock.unlock();
      read_rest(read);
      lock.lock();
      --from.under_way;
      // Under the lock: its caller may go as soon as it has it.
      if (from.under_way == 0 && from.next == from.reads.size()) from.ended.notify_all();
    }

    void work() {
      std::unique_lock lock{mutex};
      while (true) {
        wanted.wait(lock, [&] { return ends || !jobs.empty(); });
        if (ends) return;
        read_one(lock, *jobs.front());
      }
    }
  };

  // The pool of a process that made this one has no threads here, and its mutex may be locked for
  // good: it is left as it is, and its memory is lost.
  pool& pool_of_process() {
    pool* found = pool_.load(std::memory_order_acquire);
    if (found != nullptr && found->process == ::getpid()) return *found;
    auto made = std::make_unique<pool>();
    if (!pool_.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel)) {
      return *found;  // another thread of this process was first
    }
    return *made.release();
  }

  const std::size_t most_;
  // Invariant: nothing, or a pool of this process, which stays until the end, or one of a process
  // that this one comes from, in whose place one of this process comes.
  std::atomic<pool*> pool_{nullptr};
};

/// An io_uring (Axboe, 2019) that reads files: many reads are under way while its thread waits for
/// the next one to end. One thread at a time.
///
/// Two rings of numbers lie in memory that is shared with the kernel. This side moves the tail of
/// the submissions and the head of the results, and the kernel the other two. A release on the one
/// side and an acquire on the other order what lies between head and tail: entries are written
/// before the tail passes them, and read before the head does.
///
/// Invariant: never more reads are queued and under way than the submissions have places. The
/// results have at least as many, so none is ever dropped.
template <class Calls = ring_calls>
class read_ring {
 public:
  /// A ring for `depth` reads, up to a power of two. `problem()` says whether the system refuses.
  read_ring(unsigned depth, Calls calls) : calls_(std::move(calls)) {
    ::io_uring_params params{};
    params.flags = IORING_SETUP_CLAMP;
    ring_ = calls_.set_up(depth, params);
    if (ring_ < 0) {
      problem_ = -ring_;
      return;
    }
    // Before 5.4 the two rings are mapped apart; there is no use in such an old one.
    if ((params.features & IORING_FEAT_SINGLE_MMAP) == 0) {
      problem_ = ENOSYS;
      return;
    }
    entries_ = params.sq_entries;
    rings_bytes_ =
        std::max<std::size_t>(params.sq_off.array + params.sq_entries * sizeof(unsigned),
                              params.cq_off.cqes + params.cq_entries * sizeof(::io_uring_cqe));
    rings_ = calls_.map(ring_, rings_bytes_, IORING_OFF_SQ_RING);
    submissions_ = static_cast<::io_uring_sqe*>(
        calls_.map(ring_, entries_ * sizeof(::io_uring_sqe), IORING_OFF_SQES));
    if (rings_ == nullptr || submissions_ == nullptr) {
      problem_ = ENOMEM;
      return;
    }
    const auto shared_words = [this](const auto& offsets) {
      return ring_words{word(offsets.head), word(offsets.tail), *word(offsets.ring_mask)};
    };
    submitted_ = shared_words(params.sq_off);
    submitted_places_ = word(params.sq_off.array);
    ended_ = shared_words(params.cq_off);
    results_ = reinterpret_cast<const ::io_uring_cqe*>(static_cast<const char*>(rings_) +
                                                       params.cq_off.cqes);
  }
  read_ring(read_ring&&) = delete;
  ~read_ring() {
    if (submissions_ != nullptr) calls_.unmap(submissions_, entries_ * sizeof(::io_uring_sqe));
    if (rings_ != nullptr) calls_.unmap(rings_, rings_bytes_);
    if (ring_ >= 0) calls_.close(ring_);
  }

  /// Why the system refuses it: its number; 0 where it does not.
  [[nodiscard]] int problem() const noexcept { return problem_; }
  /// Whether it was made by this process: a ring that came along by fork() is the parent's.
  [[nodiscard]] bool is_ours() const noexcept { return process_ == ::getpid(); }

  /// Reads all of `reads`, and returns when none is under way any more. Those that could not be
  /// read, for whatever reason, are not whole then, and may be tried otherwise.
  void read(std::span<file_read> reads) noexcept {
    std::size_t next = 0;
    while (true) {
      while (problem_ == 0 && next < reads.size() && queued_ + under_way_ < entries_) {
        if (!reads[next].is_whole()) queue(reads[next]);
        ++next;
      }
      const unsigned all = queued_ + under_way_;
      if (all == 0) return;
      // Woken for a quarter of them at a time, and once for the last ones.
      submit(next < reads.size() ? (std::max)(all / 4, 1U) : all);
      reap();
    }
  }

 private:
  using shared = std::atomic_ref<unsigned>;

  // Where one of the two rings begins and ends, in memory that is shared.
  struct ring_words {
    unsigned* head = nullptr;
    unsigned* tail = nullptr;
    unsigned mask = 0;
  };

  [[nodiscard]] unsigned* word(unsigned offset) const noexcept {
    return reinterpret_cast<unsigned*>(static_cast<char*>(rings_) + offset);
  }

  void queue(file_read& read) noexcept {
    // A result is an int; a read of more than that comes in parts.
    constexpr std::size_t most = std::size_t{1} << 30;
    // Only this side writes the tail.
    const unsigned tail = *submitted_.tail;
    const unsigned at = tail & submitted_.mask;
    ::io_uring_sqe& entry = submissions_[at];
    entry = {};
    entry.opcode = IORING_OP_READ;
    entry.fd = read.file;
    entry.off = read.offset + read.done;
    entry.addr = reinterpret_cast<std::uintptr_t>(read.out + read.done);
    entry.len = static_cast<unsigned>((std::min)(read.size - read.done, most));
    entry.user_data = reinterpret_cast<std::uintptr_t>(&read);
    submitted_places_[at] = at;
    shared{*submitted_.tail}.store(tail + 1, std::memory_order_release);
    ++queued_;
  }

  // Hands over what is queued, and waits for so many results.
  void submit(unsigned least) noexcept {
    const int entered = calls_.enter(ring_, queued_, least);
    if (entered >= 0) {
      const unsigned count = (std::min)(static_cast<unsigned>(entered), queued_);
      queued_ -= count;
      under_way_ += count;
      return;
    }
    if (entered == -EINTR) return;
    // EAGAIN and EBUSY: no memory for more at the moment. Else the ring is of no more use. What
    // has been handed over writes into the callers' memory, so its end has to be waited for.
    if (entered != -EAGAIN && entered != -EBUSY) problem_ = -entered;
    take_back();
    if (under_way_ > 0) calls_.wait(ring_);
  }

  // What the kernel has not taken is not queued any more: it looks at the tail in `enter` only.
  void take_back() noexcept {
    const unsigned head = shared{*submitted_.head}.load(std::memory_order_acquire);
    const unsigned taken = queued_ - (*submitted_.tail - head);
    under_way_ += taken;
    queued_ = 0;
    shared{*submitted_.tail}.store(head, std::memory_order_release);
  }

  void reap() noexcept {
    unsigned head = *ended_.head;  // only this side writes it
    const unsigned tail = shared{*ended_.tail}.load(std::memory_order_acquire);
    while (head != tail) {
      const ::io_uring_cqe& result = results_[head & ended_.mask];
      const auto handed_in = static_cast<std::uintptr_t>(result.user_data);
      auto& read = *reinterpret_cast<file_read*>(handed_in);  // NOLINT: as `queue` gave it
      const int count = result.res;
      ++head;
      shared{*ended_.head}.store(head, std::memory_order_release);
      --under_way_;
      // 0 is the end of the file; what an error means, the next engine finds out.
      if (count <= 0) continue;
      read.done += static_cast<std::size_t>(count);
      if (!read.is_whole() && problem_ == 0) queue(read);
    }
  }

  Calls calls_;
  int ring_ = -1;
  int problem_ = 0;
  ::pid_t process_ = ::getpid();
  unsigned entries_ = 0;
  unsigned queued_ = 0;     // written to the submissions, and not handed over
  unsigned under_way_ = 0;  // handed over, and without a result
  void* rings_ = nullptr;
  std::size_t rings_bytes_ = 0;
  ::io_uring_sqe* submissions_ = nullptr;
  ring_words submitted_;
  unsigned* submitted_places_ = nullptr;  // of the entries, by their place in the ring
  ring_words ended_;
  const ::io_uring_cqe* results_ = nullptr;
};

}  // namespace detail

/// How a `local_store` reads what the system does not hold in memory.
enum class read_engine {
  best,     ///< `uring`, and `threads` where the system refuses it
  uring,    ///< io_uring: many reads under way for the calling thread, which no thread waits for
  threads,  ///< by threads of the store, each of which waits for its read
  pread,    ///< one after the other on the calling thread
};

/// How a `local_store` reads its files.
struct local_store_options {
  /// How `read_many` reads what is not in memory. `read` always reads on the calling thread.
  read_engine engine = read_engine::best;
  /// Reads past the page cache (O_DIRECT), by way of aligned memory of the store, 2 to 8 MiB for
  /// each call that is under way, where the caller's is not aligned to 4,096 bytes. For files that
  /// are larger than the memory and read once an epoch. A file system that has no such reads is
  /// read as ever: `stats().direct_refused`.
  bool direct = false;
  /// How many files stay open; with `direct` each takes two descriptors. From 1 on. Each call that
  /// is under way has up to so many open besides, if others have used more files since: n threads
  /// take (n + 1) times as many at most.
  std::size_t most_open = 256;
  /// With io_uring: how many reads one call has under way at a time. From 1 to 4,096.
  std::size_t depth = 64;
  /// With threads: how many there are, besides the calling one. From 1 to 1,024. They start with
  /// the first read that needs them; where the system refuses some, there are fewer.
  std::size_t threads = 15;
};

/// What a `local_store` has read so far. Reads count in pieces of at most 1 MiB, which do not pass
/// a multiple of 1 MiB in their file.
struct local_store_stats {
  std::uint64_t bytes = 0;            ///< bytes delivered
  std::uint64_t from_page_cache = 0;  ///< pieces that the system held in memory
  std::uint64_t by_uring = 0;         ///< pieces by io_uring
  std::uint64_t by_threads = 0;       ///< pieces by threads of the store
  std::uint64_t by_pread = 0;  ///< pieces by the calling thread, with all that the others left
  std::uint64_t opened = 0;    ///< how often a file was opened
  std::uint64_t direct_refused = 0;  ///< how often a file was opened that has no direct reads
};

namespace detail {

/// A part of a range that is read by itself, of 1 MiB at most.
struct local_piece {
  const open_file_pair* from;
  std::size_t range;  ///< by its number
  file_read read;     ///< by way of the page cache
};

/// Reads pieces of files: what is in memory at once, and the rest by an engine. What that leaves,
/// for whatever reason, the calling thread reads by pread, which has the last word on what is
/// wrong. One thread at a time.
template <class Calls>
class piece_reader {
 public:
  /// `engine` is none but `pread` where `threads` is null and the ring is refused.
  piece_reader(read_engine engine, unsigned depth, Calls calls, read_threads* threads)
      : depth_(depth), calls_(std::move(calls)), threads_(threads) {
    if (engine == read_engine::uring) ring_.emplace(depth_, calls_);
  }

  /// Why the system refuses a ring: its number; 0 where it does not, or was not asked.
  [[nodiscard]] int ring_problem() const noexcept { return ring_ ? ring_->problem() : 0; }

  /// Reads `pieces`, and returns when none is under way any more. Those that are not whole then
  /// have ended too early, or have an error. `is_alone`: on the calling thread and nothing else.
  /// Returns where they came from, and nothing else of the statistics.
  [[nodiscard]] local_store_stats read(std::span<local_piece> pieces, bool is_alone) {
    local_store_stats counts;
    while (!pieces.empty()) pieces = pieces.subspan(read_some(pieces, is_alone, counts));
    return counts;
  }

 private:
  static constexpr std::size_t alignment = direct_memory::alignment;
  // How much is read past the page cache at a time by way of memory of our own.
  static constexpr std::size_t most_room = std::size_t{8} << 20;

  // How many pieces it has read.
  std::size_t read_some(std::span<local_piece> pieces, bool is_alone, local_store_stats& counts) {
    cold_.clear();
    reads_.clear();
    std::size_t room = 0;
    std::size_t at = 0;
    for (; at < pieces.size(); ++at) {
      local_piece& piece = pieces[at];
      if (piece.from->direct.get() >= 0) {
        if (room > 0 && room + wide(piece.read).size > most_room) break;
        cold_.push_back(at);
        room += add_direct(piece);
        continue;
      }
      read_cached(piece.read);
      if (piece.read.is_whole()) {
        ++counts.from_page_cache;
        continue;
      }
      cold_.push_back(at);
      reads_.push_back(piece.read);
    }
    take_room(room);
    read_cold(is_alone, counts);
    for (std::size_t i = 0; i < cold_.size(); ++i) finish(pieces[cold_[i]], reads_[i], counts);
    return at;
  }

  // The read that begins and ends at multiples of the alignment.
  static file_read wide(const file_read& read) noexcept {
    const std::size_t skipped = read.offset % alignment;
    const std::size_t size = (skipped + read.size + alignment - 1) / alignment * alignment;
    return {read.file, read.offset - skipped, nullptr, size, skipped + read.size};
  }

  // How many bytes of our memory it takes: none where the piece is read straight to its place.
  std::size_t add_direct(const local_piece& piece) {
    file_read read = wide(piece.read);
    read.file = piece.from->direct.get();
    const bool is_aligned = read.offset == piece.read.offset && read.size == piece.read.size &&
                            reinterpret_cast<std::uintptr_t>(piece.read.out) % alignment == 0;
    if (is_aligned) read.out = piece.read.out;
    reads_.push_back(read);
    return is_aligned ? 0 : read.size;
  }

  void take_room(std::size_t bytes) {
    std::byte* place = room_.room_for(bytes);
    for (file_read& read : reads_) {
      if (read.out == nullptr) read.out = std::exchange(place, place + read.size);
    }
  }

  void read_cold(bool is_alone, local_store_stats& counts) {
    // A single read has nothing to overlap with.
    const bool is_single = is_alone || reads_.size() < 2;
    if (!is_single && ring_) {
      if (!ring_->is_ours()) ring_.emplace(depth_, calls_);
      if (ring_->problem() == 0) {
        ring_->read(reads_);
        counts.by_uring += whole();
        return;
      }
    }
    if (!is_single && threads_ != nullptr) {
      threads_->read(reads_);
      counts.by_threads += whole();
    }
  }

  // How many of the pieces have been read.
  [[nodiscard]] std::uint64_t whole() const noexcept {
    return static_cast<std::uint64_t>(std::ranges::count_if(reads_, &file_read::is_whole));
  }

  // Takes what was read of a piece to its place, and reads what is left.
  void finish(local_piece& piece, file_read& read, local_store_stats& counts) {
    const bool had_all = read.is_whole();
    if (!had_all && piece.from->direct.get() >= 0) read_rest(read);
    // Bytes of the wider, aligned read that come before the piece.
    const auto skipped = static_cast<std::size_t>(piece.read.offset - read.offset);
    const std::size_t got = read.done - (std::min)(read.done, skipped);
    piece.read.done = (std::min)(got, piece.read.size);
    if (read.out != piece.read.out && piece.read.done > 0) {
      std::memcpy(piece.read.out, read.out + skipped, piece.read.done);
    }
    if (had_all) return;
    ++counts.by_pread;
    // By way of the page cache, which reads what direct reads have no alignment for.
    read_rest(piece.read);
  }

  unsigned depth_;
  Calls calls_;
  read_threads* threads_;
  std::optional<read_ring<Calls>> ring_;
  std::vector<std::size_t> cold_;  // which pieces
  std::vector<file_read> reads_;   // one for each of `cold_`; without `out` before `take_room`
  direct_memory room_;
};

}  // namespace detail

/// The files below a folder as a `batching_store`: objects are named by their paths from there.
///
///     local_store disk{"/data/train", {.engine = read_engine::best}};
///     disk.read_many(ranges);          // all under way at once
///
/// No name leads to a file outside of the folder, by `..` or by a link: `object_name_error`. What
/// the system holds in memory is copied from there; the rest is read by io_uring, where the system
/// has it, else by threads. `engine()` says which, and `stats()` what each has read.
///
/// A file is as it was when the store first opened it: one that was written to since, or replaced
/// and opened again, gives `file_changed`. Takes 150 bytes and the name for each file that was ever
/// read. Movable, not copyable. Reading is thread-safe; in a child made by `fork()` too, if no
/// other thread was reading then.
///
/// `Calls`: how the system is asked for io_uring, for tests.
template <class Calls = detail::ring_calls>
class basic_local_store {
 public:
  /// Over the folder `root`. Throws `file_unreadable`, and `option_error` for options that mean
  /// nothing, and where `engine` is `uring` and the system refuses it.
  explicit basic_local_store(std::string root, const local_store_options& options = {},
                             Calls calls = {})
      : state_(std::make_unique<state>(std::move(root), checked(options), std::move(calls))) {}

  /// How many bytes the file `object` has. Throws `object_name_error`, `file_unreadable`,
  /// `file_changed`.
  [[nodiscard]] std::uint64_t size_of(std::string_view object) const {
    return state_->files.open(object)->size();
  }

  /// That, when it was last written to, in nanoseconds, and its inode: see `versioned_store`.
  [[nodiscard]] object_state state_of(std::string_view object) const {
    const detail::file_stamp stamp = state_->files.open(object)->stamp;
    return {stamp.size, std::to_string(stamp.seconds) + '.' + std::to_string(stamp.nanoseconds) +
                            ' ' + std::to_string(stamp.inode)};
  }

  /// Reads a range on the calling thread. Throws as `read_many`.
  void read(const byte_range& range) const { state_->read({&range, 1}, true); }

  /// Reads all of `ranges`, side by side. Throws `object_name_error`, `file_unreadable`,
  /// `file_truncated` for a range that reaches beyond the end of its file, and `file_changed`: for
  /// the first range of which that is so. Nothing is written to any more then.
  void read_many(std::span<const byte_range> ranges) const {
    // Of so many at a time, so that this call has no more files open.
    const std::size_t most = state_->options.most_open;
    for (; !ranges.empty(); ranges = ranges.subspan((std::min)(most, ranges.size()))) {
      state_->read(ranges.first((std::min)(most, ranges.size())), false);
    }
  }

  /// The folder, as it was given.
  [[nodiscard]] const std::string& root() const noexcept { return state_->files.root().path(); }
  /// How `read_many` reads what is not in memory: never `best`.
  [[nodiscard]] read_engine engine() const noexcept { return state_->engine; }
  /// Why `best` became `threads`, in the system's words; "" where it did not.
  [[nodiscard]] const std::string& engine_problem() const noexcept { return state_->problem; }
  /// What was read so far. From any thread.
  [[nodiscard]] local_store_stats stats() const noexcept { return state_->stats(); }

 private:
  using reader = detail::piece_reader<Calls>;

  static const local_store_options& checked(const local_store_options& options) {
    const auto require = [](std::string_view name, std::size_t value, std::size_t most) {
      if (value < 1 || value > most)
        detail::refuse_option(name, {value, " is not from 1 to ", most});
    };
    require("most_open", options.most_open, std::size_t{1} << 30);
    require("depth", options.depth, 4096);
    require("threads", options.threads, 1024);
    return options;
  }

  struct state {
    state(std::string root, const local_store_options& wishes, Calls with)
        : options(wishes),
          calls(std::move(with)),
          files(detail::root_folder{std::move(root)}, options.most_open, options.direct),
          threads(options.threads) {
      engine = options.engine == read_engine::best ? read_engine::uring : options.engine;
      auto first = make();
      if (first->ring_problem() == 0) {
        give_back(std::move(first));
        return;
      }
      problem = "io_uring is refused: " + std::system_category().message(first->ring_problem());
      if (options.engine == read_engine::uring) {
        throw option_error("engine", problem + ": take read_engine::best");
      }
      engine = read_engine::threads;
    }

    [[nodiscard]] std::unique_ptr<reader> make() {
      return std::make_unique<reader>(engine, static_cast<unsigned>(options.depth), calls,
                                      engine == read_engine::pread ? nullptr : &threads);
    }
    [[nodiscard]] std::unique_ptr<reader> take() {
      {
        const std::lock_guard lock{mutex};
        if (!readers.empty()) {
          auto one = std::move(readers.back());
          readers.pop_back();
          return one;
        }
      }
      return make();
    }
    void give_back(std::unique_ptr<reader> one) {
      const std::lock_guard lock{mutex};
      readers.push_back(std::move(one));
    }

    void read(std::span<const byte_range> ranges, bool is_alone) {
      std::vector<detail::open_files::file> opened;
      std::vector<detail::local_piece> pieces;
      std::uint64_t bytes = 0;
      std::size_t sound = 0;     // ranges that can be read
      std::exception_ptr wrong;  // of the first one that can't: those before may have others
      try {
        for (; sound < ranges.size(); ++sound) {
          const byte_range& range = ranges[sound];
          const bool is_same = sound > 0 && range.object == ranges[sound - 1].object;
          opened.push_back(is_same ? opened.back() : files.open(range.object));
          detail::require_inside(range, opened.back()->size(),
                                 [&] { return files.root().path_of(range.object); });
          cut(range, sound, *opened.back(), pieces);
          bytes += range.out.size();
        }
      } catch (...) {
        wrong = std::current_exception();
      }
      auto with = take();
      add(with->read(pieces, is_alone), bytes);
      give_back(std::move(with));
      for (std::size_t i = 0, piece = 0; i < sound; ++i) {
        for (; piece < pieces.size() && pieces[piece].range == i; ++piece) {
          if (!pieces[piece].read.is_whole()) fail(ranges[i].object, pieces[piece]);
        }
        const bool is_same = i > 0 && opened[i] == opened[i - 1];
        if (!is_same) files.require_unchanged(ranges[i].object, *opened[i]);
      }
      if (wrong) std::rethrow_exception(wrong);
    }

    // At multiples of a size in the file, so that direct reads don't overlap.
    static void cut(const byte_range& range, std::size_t number, const detail::open_file_pair& file,
                    std::vector<detail::local_piece>& pieces) {
      constexpr std::uint64_t most = std::uint64_t{1} << 20;
      std::span<std::byte> left = range.out;
      for (std::uint64_t at = range.offset; !left.empty();) {
        const auto size =
            static_cast<std::size_t>(std::min<std::uint64_t>(most - at % most, left.size()));
        pieces.push_back({&file, number, {file.cached.get(), at, left.data(), size, size}});
        left = left.subspan(size);
        at += size;
      }
    }

    [[noreturn]] void fail(std::string_view object, const detail::local_piece& piece) const {
      const std::uint64_t at = piece.read.offset + piece.read.done;
      const std::string path = files.root().path_of(object);
      if (piece.read.error != 0) {
        throw file_unreadable(path, at, "a readable file",
                              std::system_category().message(piece.read.error));
      }
      throw file_changed(path, at,
                         "a file of " + std::to_string(piece.from->size()) +
                             " bytes, as when the store first opened it",
                         "one that ends here: make a new store when all files are whole");
    }

    void add(const local_store_stats& counts, std::uint64_t more) noexcept {
      const std::lock_guard lock{mutex};
      sum.bytes += more;
      sum.from_page_cache += counts.from_page_cache;
      sum.by_uring += counts.by_uring;
      sum.by_threads += counts.by_threads;
      sum.by_pread += counts.by_pread;
    }
    [[nodiscard]] local_store_stats stats() noexcept {
      const std::lock_guard lock{mutex};
      local_store_stats now = sum;
      now.opened = files.opened();
      now.direct_refused = files.direct_refused();
      return now;
    }

    const local_store_options options;
    const Calls calls;
    detail::open_files files;
    detail::read_threads threads;
    read_engine engine = read_engine::pread;
    std::string problem;
    std::mutex mutex;  // guards what follows; held for no call of the system
    std::vector<std::unique_ptr<reader>> readers;  // that nobody uses
    local_store_stats sum;
  };

  std::unique_ptr<state> state_;
};

/// The store of files below a folder, see `basic_local_store`.
using local_store = basic_local_store<>;

static_assert(batching_store<local_store>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
