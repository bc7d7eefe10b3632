// Losses of power, modelled: what a save asks of the file system is written down, and after each prefix of it the disk may have any
// of the states that its promises allow. Data is sure once its file was synced, until then each write may be there, torn or lost; a
// name is sure once its folder was synced. In all of them the file is the old one or the new one, whole.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "serialization/retention.h"
#include "tests/serialization/checkpoint_support.h"
#include "tests/support/one_file.h"

namespace weft::testing {
namespace {

struct Op {
  enum Kind { kWrite, kTruncate, kSync, kLink, kUnlink, kSyncFolder } kind;
  int file = 0;
  uint64_t offset = 0;
  std::string data, name, from;  // `from`: of a link that is a rename
};

// One folder in memory. Descriptors are file numbers; the folder's is kFolder.
class Folder final : public OneFile {
 public:
  static constexpr int kFolder = 1 << 20;
  std::vector<Op> ops;
  std::map<std::string, int> names;
  std::vector<std::string> files;

  int Open(int, const char* path, OpenFlags flags, uint32_t) override {
    if (flags.directory) return kFolder;
    const std::string name(BaseNameOf(path));
    if (flags.create_exclusive) {
      names[name] = static_cast<int>(files.size());
      files.emplace_back();
      ops.push_back({.kind = Op::kLink, .file = names[name], .name = name});
    }
    return names.contains(name) ? names[name] : -ENOENT;
  }
  int64_t ReadAt(int fd, void* data, size_t size, int64_t offset) override {
    const std::string& file = files[static_cast<size_t>(fd)];
    const size_t at = std::min(static_cast<size_t>(offset), file.size()), n = std::min(size, file.size() - at);
    std::memcpy(data, file.data() + at, n);
    return static_cast<int64_t>(n);
  }
  int64_t WriteAt(int fd, const void* data, size_t size, int64_t offset) override {
    ops.push_back({.kind = Op::kWrite, .file = fd, .offset = static_cast<uint64_t>(offset),
                   .data = std::string(static_cast<const char*>(data), size)});
    Apply(ops.back(), ops.back().data.size(), &files[static_cast<size_t>(fd)]);
    return static_cast<int64_t>(size);
  }
  int64_t Write(int fd, const void* data, size_t size) override {
    return WriteAt(fd, data, size, static_cast<int64_t>(files[static_cast<size_t>(fd)].size()));
  }
  int Truncate(int fd, int64_t size) override {
    ops.push_back({.kind = Op::kTruncate, .file = fd, .offset = static_cast<uint64_t>(size)});
    Apply(ops.back(), 0, &files[static_cast<size_t>(fd)]);
    return 0;
  }
  int SyncData(int fd) override { return ops.push_back({.kind = Op::kSync, .file = fd}), 0; }
  int SyncAll(int) override { return ops.push_back({.kind = Op::kSyncFolder}), 0; }
  int StatFd(int fd, FileInfo* info) override {
    info->kind = fd == kFolder ? FileKind::kDirectory : FileKind::kRegular;
    info->links = 1;
    info->mode = 0644;
    info->size = fd == kFolder ? 0 : static_cast<int64_t>(files[static_cast<size_t>(fd)].size());
    return 0;
  }
  int Stat(int, const char* path, FileInfo* info) override {
    const auto found = names.find(std::string(BaseNameOf(path)));
    return found == names.end() ? -ENOENT : StatFd(found->second, info);
  }
  int Rename(int, const char* from, const char* to) override {
    ops.push_back({.kind = Op::kLink, .file = names[from], .name = to, .from = from});
    names[to] = names[from];
    names.erase(from);
    return 0;
  }
  int Unlink(int, const char* path) override {
    ops.push_back({.kind = Op::kUnlink, .name = path});
    names.erase(path);
    return 0;
  }

  // The first `bytes` of a write, or a change of length.
  static void Apply(const Op& op, size_t bytes, std::string* file) {
    if (op.kind == Op::kTruncate) return file->resize(op.offset);
    if (file->size() < op.offset + bytes) file->resize(op.offset + bytes);
    file->replace(op.offset, bytes, op.data, 0, bytes);
  }
};

// Returns the contents of the file name after a loss of power behind `count` calls, where `random` chooses what had reached the
// disk; "none" if there is no such file.
std::string AfterLoss(const Folder& before, const std::vector<Op>& ops, size_t count, const std::string& name,
                      std::minstd_rand& random, uint64_t* choices) {
  std::map<std::string, int> names = before.names;
  std::vector<std::string> files = before.files;
  files.resize(before.files.size() + 8);
  std::map<int, size_t> synced;
  size_t folder = 0;
  for (size_t i = 0; i < count; ++i) {
    if (ops[i].kind == Op::kSync) synced[ops[i].file] = i;
    if (ops[i].kind == Op::kSyncFolder) folder = i;
  }
  for (size_t i = 0; i < count; ++i) {
    const Op& op = ops[i];
    const bool of_name = op.kind == Op::kLink || op.kind == Op::kUnlink;
    const bool sure = of_name ? i < folder : synced.contains(op.file) && i < synced[op.file];
    const uint32_t choice = sure ? 1 : random() % 3;  // lost, whole, torn
    *choices = *choices * 31 + choice + (sure ? 7 : 0);
    if (choice == 0) continue;
    if (op.kind == Op::kLink) {
      names.erase(op.from);
      names[op.name] = op.file;
    } else if (op.kind == Op::kUnlink) {
      names.erase(op.name);
    } else if (op.kind == Op::kWrite || op.kind == Op::kTruncate) {
      const size_t torn = choice == 1 ? op.data.size() : random() % (op.data.size() / 512 + 1) * 512;
      *choices = *choices * 31 + torn;
      Folder::Apply(op, torn, &files[static_cast<size_t>(op.file)]);
    }
  }
  return names.contains(name) ? files[static_cast<size_t>(names[name])] : "none";
}

struct Saved {
  Folder before, after;
  std::string old, now;
};

// One save over an old file: of some KiB; compressed, upon a base; of 9 MiB.
enum class Kind { kSmall, kUponABase, kLarge };
Saved Record(Kind kind) {
  const bool base = kind == Kind::kUponABase;
  Saved saved;
  Folder& fs = saved.before;
  State old = SmallState(), state = SmallState();
  const int64_t elements = kind == Kind::kSmall ? 500 : base ? 17'000 : 3 << 18;
  for (int i = 0; i < 3; ++i) state.AddTensor(0, absl::StrCat("more", i), DType::kF32, {elements});
  SaveOptions options;
  options.fs = &fs;
  for (const char* const name : {"base", "a"}) {
    State& first = name[0] == 'a' ? old : state;
    EXPECT_TRUE(SaveCheckpoint(name, first.tree, first, options).ok());
  }
  saved.old = fs.files[static_cast<size_t>(fs.names["a"])];
  fs.ops.clear();
  saved.after = fs;
  options.fs = &saved.after;
  options.base = base ? "base" : "";
  options.compress = base;
  const absl::Status status = SaveCheckpoint("a", state.tree, state, options);
  EXPECT_TRUE(status.ok()) << status;
  saved.now = saved.after.files[static_cast<size_t>(saved.after.names["a"])];
  EXPECT_NE(saved.old, saved.now);
  return saved;
}

// How many of so many states are neither the old file nor the new one, or the old one once success was reported.
int BadStates(const Saved& saved, const std::vector<Op>& ops, int count, std::set<uint64_t>* distinct) {
  std::minstd_rand random(static_cast<uint32_t>(ops.size()));
  int bad = 0;
  for (int i = 0; i < count; ++i) {
    const size_t cut = random() % (ops.size() + 1);
    uint64_t choices = cut + 1;
    const std::string found = AfterLoss(saved.before, ops, cut, "a", random, &choices);
    distinct->insert(choices);
    if (found != saved.now && (found != saved.old || cut == ops.size())) ++bad;
  }
  return bad;
}

TEST(CrashStates, ALossOfPowerLeavesTheOldFileOrTheNewOne) {
  const char* const full = std::getenv("WEFT_FULL_CRASHES");
  const int count = full != nullptr ? std::atoi(full) / 2 : 2000;
  std::set<uint64_t> distinct;
  int states = 0;
  for (const Kind kind : {Kind::kSmall, Kind::kUponABase, Kind::kLarge}) {
    const Saved saved = Record(kind);
    const int tries = kind == Kind::kLarge ? std::max(count / 100, 200) : count;
    EXPECT_EQ(BadStates(saved, saved.after.ops, tries, &distinct), 0) << static_cast<int>(kind);
    states += tries;
  }
  std::printf("%d states, %zu of them distinct\n", states, distinct.size());
}

// The order of calls matters: each of these mistakes is found.
TEST(CrashStates, MistakesInTheOrderOfCallsAreFound) {
  const Saved saved = Record(Kind::kSmall);
  const std::vector<Op>& good = saved.after.ops;
  const auto of = [&](Op::Kind kind, bool rename = false) {
    return std::find_if(good.begin(), good.end(), [&](const Op& op) { return op.kind == kind && op.from.empty() != rename; }) -
           good.begin();
  };
  const ptrdiff_t sync = of(Op::kSync), rename = of(Op::kLink, true), folder = of(Op::kSyncFolder);
  ASSERT_TRUE(sync < rename && rename < folder && folder < std::ssize(good));
  std::set<uint64_t> distinct;
  std::vector<Op> late = good;
  std::swap(late[static_cast<size_t>(sync)], late[static_cast<size_t>(rename)]);
  EXPECT_GT(BadStates(saved, late, 2000, &distinct), 0) << "renamed before it is synced";
  std::vector<Op> never = good;
  never.erase(never.begin() + sync);
  EXPECT_GT(BadStates(saved, never, 2000, &distinct), 0) << "never synced";
  std::vector<Op> no_folder = good;
  no_folder.erase(no_folder.begin() + folder);
  EXPECT_GT(BadStates(saved, no_folder, 2000, &distinct), 0) << "the folder is not synced";
}

}  // namespace
}  // namespace weft::testing
