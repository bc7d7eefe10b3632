// How fast and in how much memory is a checkpoint saved and loaded? 4 GiB of state out of one tensor of 64 MiB under 64 names, so that the
// state itself is small and the writer's memory shows. The floor of a durable save is the disk: the same bytes written with
// O_DIRECT in 4 MiB pieces and synced, in the same run. --quick: 256 MiB. --dir D: where (default: .). --json: one array.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "bench_util.h"
#include "weft.h"

namespace {

std::string path;  // of the checkpoint

void Check(weft_error* error) {
  if (error == nullptr) return;
  std::fprintf(stderr, "checkpoint: %s\n", weft_error_message(error, nullptr));
  unlink(path.c_str());
  std::exit(1);
}

double Seconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double PeakMiB() {
  double kib = 0;
  char line[256];
  FILE* in = std::fopen("/proc/self/status", "r");
  while (in != nullptr && std::fgets(line, sizeof(line), in) != nullptr) {
    if (std::strncmp(line, "VmHWM:", 6) == 0) kib = std::atof(line + 6);
  }
  if (in != nullptr) std::fclose(in);
  return kib / 1024;
}

// Makes the peak the current size.
void ResetPeak() {
  const int fd = open("/proc/self/clear_refs", O_WRONLY);
  if (fd >= 0) {
    if (write(fd, "5", 1) != 1) std::perror("clear_refs");
    close(fd);
  }
}

// The disk's own speed, page cache bypassed; 0 where the file system cannot.
double DirectWriteSeconds(const std::string& path, uint64_t bytes) {
  constexpr size_t kPiece = 4 << 20;
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT, 0600);
  if (fd < 0) return 0;
  void* memory = nullptr;
  if (posix_memalign(&memory, 4096, kPiece) != 0) std::exit(1);
  std::memset(memory, 7, kPiece);
  bool good = fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0;
  const double seconds = Seconds([&] {
    for (uint64_t at = 0; at < bytes && good; at += kPiece) {
      good = pwrite(fd, memory, kPiece, static_cast<off_t>(at)) == static_cast<ssize_t>(kPiece);
    }
    good = good && fdatasync(fd) == 0;
  });
  close(fd);
  unlink(path.c_str());
  std::free(memory);
  return good ? seconds : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options = bench::Parse(argc, argv);
  const bool elsewhere = options.rest.size() == 2 && options.rest[0] == "--dir";
  if (options.help || (!options.rest.empty() && !elsewhere)) {
    std::fputs("usage: checkpoint [--json] [--quick] [--dir D] [--help]\n"
               "  --dir D   where to write up to 8 GiB, removed at the end (.)\n", options.help ? stdout : stderr);
    return options.help ? 0 : 2;
  }
  const std::string dir = elsewhere ? options.rest[1] : ".";
  const int names = options.quick ? 4 : 64;
  const uint64_t each = 64 << 20, total = each * static_cast<uint64_t>(names);
  path = dir + "/weft_benchmark.tck";
  const std::string raw = dir + "/weft_benchmark.raw";

  weft_context* ctx = nullptr;
  Check(weft_context_create(nullptr, &ctx));
  weft_tree* tree = nullptr;
  Check(weft_tree_create(&tree));
  weft_tensor* tensor = nullptr;
  {
    std::vector<uint32_t> noise(each / 4);
    std::minstd_rand random(7);
    for (uint32_t& x : noise) x = (random() & 0x3FFFFFFFu) | 0x20000000u;
    const int64_t dims[] = {1 << 14, 1 << 10};
    Check(weft_tensor_from_host(ctx, nullptr, WEFT_F32, dims, 2, noise.data(), each, &tensor));
  }
  for (int i = 0; i < names; ++i) {
    const std::string key = "w" + std::to_string(i);
    Check(weft_tree_add_tensor(tree, WEFT_TREE_ROOT, key.data(), key.size(), tensor, nullptr));
  }

  std::vector<double> save, disk, load;
  double memory = 0;
  const int rounds = 3;
  for (int round = 0; round < rounds; ++round) {
    const double floor = DirectWriteSeconds(raw, total);
    if (floor > 0) disk.push_back(static_cast<double>(total) / floor / 1e9);
    ResetPeak();
    const double before = PeakMiB();
    const double seconds = Seconds([&] { Check(weft_checkpoint_save(ctx, path.data(), path.size(), tree, nullptr, nullptr)); });
    memory = std::max(memory, PeakMiB() - before);
    save.push_back(static_cast<double>(total) / seconds / 1e9);
    weft_checkpoint_reader* reader = nullptr;
    const double reading = Seconds([&] {
      Check(weft_checkpoint_reader_open(ctx, path.data(), path.size(), &reader));
      for (int i = 0; i < names; ++i) {
        const std::string key = "w" + std::to_string(i);
        weft_tensor* back = nullptr;
        Check(weft_checkpoint_reader_load(reader, key.data(), key.size(), nullptr, &back));
        weft_tensor_release(back);
      }
    });
    weft_checkpoint_reader_release(reader);
    load.push_back(static_cast<double>(total) / reading / 1e9);
  }
  unlink(path.c_str());
  weft_tensor_release(tensor);
  weft_tree_release(tree);
  weft_context_release(ctx);

  const double floor = disk.empty() ? 0 : bench::Median(disk);
  bench::Print({{"checkpoint save, durable", bench::Median(save), "GB/s", floor, floor > 0 ? bench::Median(save) / floor : 0, {}},
                {"checkpoint save, memory, against its limit", memory, "MiB", 32, memory / 32, {}},
                {"checkpoint load to device", bench::Median(load), "GB/s", 0, 0, {}}},
               options);
  return 0;
}
