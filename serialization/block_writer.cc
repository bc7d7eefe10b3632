// One producer, one writer thread, blocks in ring order.
#include "serialization/block_writer.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <system_error>
#include <thread>

#include "src/runtime/alloc_hook.h"
#include "src/runtime/mutex.h"
#include "src/runtime/status.h"

namespace weft {

struct BlockWriter::Ring {
  struct Block {
    std::byte* data = nullptr;
    size_t used = 0;
    uint64_t offset = 0;
  };
  Ring(File* f, Target t) : file(f), target(t) {}
  ~Ring() {
    for (Block& block : blocks) FreeLarge(block.data, kBlockBytes);
  }

  absl::Status WriteBlock(const Block& block) {
    if (target == Target::kStream) return file->Write({block.data, block.used});
    size_t bytes = block.used;
    if (direct) {
      bytes = (block.used + 4095) / 4096 * 4096;
      std::memset(block.data + block.used, 0, bytes - block.used);
    }
    absl::Status status = file->WriteAt(static_cast<int64_t>(block.offset), {block.data, bytes});
    if (direct && absl::IsInvalidArgument(status)) {
      // A file system with another alignment, or the rest of a short write: the page cache takes anything.
      direct = false;
      if (file->fs()->SetDirect(file->fd(), false) == 0) {
        status = file->WriteAt(static_cast<int64_t>(block.offset), {block.data, block.used});
      }
    }
    return status;
  }

  // Nothing may leave the thread, and a text would need memory.
  absl::Status TryWriteBlock(const Block& block) {
    try {
      return WriteBlock(block);
    } catch (const std::bad_alloc&) {
      return absl::Status(absl::StatusCode::kResourceExhausted, "");
    }
  }

  void Work() {
    MutexLock lock(mutex);
    for (;;) {
      while (written == handed && !stop) changed.Wait(mutex);
      if (written == handed) return;
      const Block& block = blocks[written % kBlocks];
      const bool skip = !status.ok();
      lock.Unlock();
      absl::Status result = skip ? absl::OkStatus() : TryWriteBlock(block);
      lock.Lock();
      if (!result.ok() && status.ok()) status = std::move(result);
      ++written;
      changed.NotifyAll();
    }
  }

  File* const file;
  const Target target;
  bool direct = target == Target::kDirectFile;  // the writing thread's
  Block blocks[kBlocks];                        // each belongs to one side at a time, by `handed` and `written`
  uint64_t filling = 0;                         // the producer's: index of the block being filled
  bool alone = false;                           // the producer's: writes itself
  std::thread thread;

  Mutex mutex;
  CondVar changed;  // handed, written, stop or status
  uint64_t handed ABSL_GUARDED_BY(mutex) = 0;
  uint64_t written ABSL_GUARDED_BY(mutex) = 0;
  bool stop ABSL_GUARDED_BY(mutex) = false;
  absl::Status status ABSL_GUARDED_BY(mutex);
};

BlockWriter::BlockWriter(File* file, Target target, bool alone, Look look)
    : file_(file), target_(target), look_(std::move(look)), ring_(std::make_unique<Ring>(file, target)) {
  ring_->alone = alone;
}

BlockWriter::~BlockWriter() {
  if (!ring_->thread.joinable()) return;
  {
    MutexLock lock(ring_->mutex);
    ring_->stop = true;
    ring_->changed.NotifyAll();
    if (ring_->status.ok()) ring_->status = absl::Status(absl::StatusCode::kCancelled, "");  // nobody reads a text
  }
  ring_->thread.join();
}

// Makes the block being filled exist and have room.
absl::Status BlockWriter::Room() {
  Ring& ring = *ring_;
  Ring::Block* block = &ring.blocks[ring.filling % kBlocks];
  if (block->data != nullptr && block->used == kBlockBytes) {
    WEFT_RETURN_IF_ERROR(HandOver());
    block = &ring.blocks[ring.filling % kBlocks];
  }
  if (block->data == nullptr) {
    block->data = static_cast<std::byte*>(AllocateLarge(kBlockBytes, 4096));
    if (block->data == nullptr) {
      return NoLargeMemory(absl::StrCat(kBlockBytes, " bytes to write '", file_->path(), "' with"));
    }
  }
  return absl::OkStatus();
}

// Waits until the thread has at most `left` blocks before it.
absl::Status BlockWriter::WaitForThread(uint64_t left) {
  Ring& ring = *ring_;
  MutexLock lock(ring.mutex);
  while (ring.handed - ring.written > left && ring.status.ok()) {
    if (!look_) {
      ring.changed.Wait(ring.mutex);
      continue;
    }
    ring.changed.WaitUntil(ring.mutex, std::chrono::steady_clock::now() + std::chrono::milliseconds(10));
    if (ring.handed - ring.written <= left) break;
    lock.Unlock();
    absl::Status given_up = look_();
    lock.Lock();
    if (!given_up.ok()) return given_up;
  }
  return ring.status;
}

// Gives the full block to the thread and waits until the next one is free.
absl::Status BlockWriter::HandOver() {
  Ring& ring = *ring_;
  if (!ring.thread.joinable() && !ring.alone) {
    try {
      ring.thread = std::thread([&ring] { ring.Work(); });
    } catch (const std::system_error&) {
      ring.alone = true;  // no thread to be had: slower, not wrong
    }
  }
  if (ring.alone) {
    Ring::Block& block = ring.blocks[ring.filling % kBlocks];
    WEFT_RETURN_IF_ERROR(ring.WriteBlock(block));
    block.used = 0;
    block.offset = position_;
    return absl::OkStatus();
  }
  {
    MutexLock lock(ring.mutex);
    ++ring.handed;
    ring.filling = ring.handed;
    ring.changed.NotifyAll();
  }
  WEFT_RETURN_IF_ERROR(WaitForThread(kBlocks - 1));
  Ring::Block& next = ring.blocks[ring.filling % kBlocks];
  next.used = 0;
  next.offset = position_;
  return absl::OkStatus();
}

absl::Status BlockWriter::Append(std::span<const std::byte> data) {
  while (!data.empty()) {
    WEFT_RETURN_IF_ERROR(Room());
    Ring::Block& block = ring_->blocks[ring_->filling % kBlocks];
    const size_t n = std::min(data.size(), kBlockBytes - block.used);
    std::memcpy(block.data + block.used, data.data(), n);
    block.used += n;
    position_ += n;
    data = data.subspan(n);
  }
  return absl::OkStatus();
}

absl::Status BlockWriter::AppendZeros(uint64_t count) {
  constexpr std::byte kZeros[4096] = {};
  while (count > 0) {
    const size_t n = static_cast<size_t>(std::min<uint64_t>(count, sizeof(kZeros)));
    WEFT_RETURN_IF_ERROR(Append({kZeros, n}));
    count -= n;
  }
  return absl::OkStatus();
}

absl::Status BlockWriter::Finish() {
  Ring& ring = *ring_;
  const bool rest = ring.blocks[ring.filling % kBlocks].used > 0;
  if (ring.thread.joinable()) {
    if (rest) WEFT_RETURN_IF_ERROR(HandOver());
    WEFT_RETURN_IF_ERROR(WaitForThread(0));
  } else if (rest) {
    WEFT_RETURN_IF_ERROR(ring.WriteBlock(ring.blocks[ring.filling % kBlocks]));
  }
  // Drops the padding of a direct write and what was allocated ahead.
  if (target_ != Target::kStream) return file_->Truncate(static_cast<int64_t>(position_));
  return absl::OkStatus();
}

}  // namespace weft
