// Groups of threads: what each collective gives, and that whatever goes wrong for one member goes wrong for all, soon.
#include "src/distributed/in_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "distributed/members.h"
#include "distributed/plain.h"
#include "support/seeds.h"

namespace weft::distributed {
namespace {

using test::ForMs;
using test::Members;
using test::RunAll;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr CollectiveKind kKinds[] = {
    CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter, CollectiveKind::kAllToAll,
    CollectiveKind::kBroadcast, CollectiveKind::kPermute,   CollectiveKind::kBarrier};

// Every other rank sends to its neighbour, the others to nobody, so that some outputs are zeros.
std::vector<Pair> SomePairs(int size) {
  std::vector<Pair> pairs;
  for (int rank = 0; rank < size; rank += 2) pairs.push_back({rank, (rank + 1) % size});
  return pairs;
}

test::Bytes RandomBytes(DType dtype, int64_t count, uint64_t seed) {
  const HostTensor tensor = test::Random(dtype, count, seed);
  return {tensor.bytes().begin(), tensor.bytes().end()};
}

void ExpectAsPlain(Members& members, Collective call) {
  const auto size = static_cast<int>(members.size());
  const std::vector<Pair> pairs = SomePairs(size);
  if (call.kind == CollectiveKind::kPermute) call.pairs = pairs;
  std::vector<test::Bytes> inputs, outputs;
  for (int rank = 0; rank < size; ++rank) {
    inputs.push_back(RandomBytes(call.dtype, InputCount(call, size), 100 + static_cast<uint64_t>(rank)));
    outputs.emplace_back(static_cast<size_t>(OutputCount(call, size) * BytesOf(call.dtype)), std::byte{0xEE});
  }
  for (const absl::Status& status : RunAll(members, [&](Communicator& member) {
         Collective own = call;
         const auto rank = static_cast<size_t>(member.rank());
         own.input = inputs[rank].data();
         own.output = outputs[rank].data();
         return member.Run(own, ForMs(60'000));
       })) {
    ASSERT_TRUE(status.ok()) << status;
  }
  const std::vector<test::Bytes> expected = test::PlainOutputs(call, inputs);
  for (size_t rank = 0; rank < members.size(); ++rank) {
    EXPECT_TRUE(test::SameElements(call.dtype, outputs[rank], expected[rank]))
        << NameOf(call.kind) << " of " << call.count << " " << weft::NameOf(call.dtype) << ", rank " << rank << " of "
        << size;
  }
}

TEST(InProcess, GivesWhatPlainLoopsGive) {
  for (const int size : {1, 2, 3, 4}) {
    Members members = MakeInProcessGroup(size);
    uint64_t tag = 0;
    for (const CollectiveKind kind : kKinds) {
      for (const int64_t count : {0, 1, 5, 128, 1000, 70'001}) {
        ExpectAsPlain(members, {.kind = kind, .dtype = DType::kF32, .count = count, .tag = ++tag, .root = size - 1});
      }
    }
  }
}

TEST(InProcess, GivesWhatPlainLoopsGiveForEveryTypeAndReduction) {
  Members members = MakeInProcessGroup(3);
  uint64_t tag = 0;
  for (const DType dtype : test::AllTypes()) {
    for (const Reduction reduction :
         {Reduction::kSum, Reduction::kProduct, Reduction::kMin, Reduction::kMax, Reduction::kAnd, Reduction::kOr}) {
      Collective call = {.kind = CollectiveKind::kAllReduce, .reduction = reduction, .dtype = dtype, .count = 3000};
      std::vector<std::byte> room(static_cast<size_t>(9000 * BytesOf(dtype)));
      call.input = room.data();
      call.output = room.data();
      if (!CheckCollective(call, 0, 3).ok()) continue;
      for (const CollectiveKind kind : {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter}) {
        for (const int64_t count : {3, 3000}) {
          ExpectAsPlain(members, {.kind = kind, .reduction = reduction, .dtype = dtype, .count = count, .tag = ++tag});
        }
      }
    }
  }
  EXPECT_GT(tag, 100u);
}

TEST(InProcess, ReducesBroadcastsAndGathersInPlace) {
  Members members = MakeInProcessGroup(4);
  std::vector<std::vector<float>> whole(4, std::vector<float>(4 * 20'000));
  const auto outcomes = RunAll(members, [&](Communicator& member) {
    const auto rank = static_cast<size_t>(member.rank());
    float* const own = whole[rank].data();
    std::fill_n(own, 20'000, static_cast<float>(rank + 1));
    WEFT_RETURN_IF_ERROR(
        member.Run({.kind = CollectiveKind::kAllReduce, .count = 20'000, .tag = 1, .input = own, .output = own}));
    if (own[0] != 10 || own[19'999] != 10) return absl::UnknownError("all_reduce");
    if (rank == 2) std::fill_n(own, 20'000, 7.0f);
    WEFT_RETURN_IF_ERROR(member.Run(
        {.kind = CollectiveKind::kBroadcast, .count = 20'000, .tag = 2, .root = 2, .input = own, .output = own}));
    if (own[0] != 7 || own[19'999] != 7) return absl::UnknownError("broadcast");
    float* const part = own + rank * 20'000;
    std::fill_n(part, 20'000, static_cast<float>(rank));
    WEFT_RETURN_IF_ERROR(
        member.Run({.kind = CollectiveKind::kAllGather, .count = 20'000, .tag = 3, .input = part, .output = own}));
    for (size_t k = 0; k < 4; ++k) {
      if (own[k * 20'000] != static_cast<float>(k)) return absl::UnknownError("all_gather");
    }
    return absl::OkStatus();
  });
  for (const absl::Status& status : outcomes) EXPECT_TRUE(status.ok()) << status;
}

TEST(InProcess, WaitsForThoseWhoComeLater) {
  Members members = MakeInProcessGroup(3);
  std::atomic<int> came{0};
  const auto outcomes = RunAll(members, [&](Communicator& member) {
    test::SleepMs(20 * member.rank());
    came.fetch_add(1);
    WEFT_RETURN_IF_ERROR(member.Run({.kind = CollectiveKind::kBarrier}, ForMs(60'000)));
    return came.load() == 3 ? absl::OkStatus() : absl::UnknownError("left the barrier too early");
  });
  for (const absl::Status& status : outcomes) EXPECT_TRUE(status.ok()) << status;
}

// --- What goes wrong ------------------------------------------------------------------------------------------

// Runs a call that goes wrong and one more; all four outcomes of each are one status.
absl::Status OneFailureOf(Members& members, const std::function<absl::Status(Communicator&)>& act) {
  std::vector<absl::Status> first = RunAll(members, act);
  for (const absl::Status& status : first) {
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(first[0], status);
  }
  for (const absl::Status& status : RunAll(members, [](Communicator& member) { return member.Run({}); })) {
    EXPECT_EQ(first[0], status) << "a poisoned group answers with its cause";
  }
  EXPECT_EQ(first[0], members[0]->Poisoned());
  return first[0];
}

// Rank 1 calls `other`, the rest `usual`, each with room for 4,096 elements.
absl::Status Mismatch(Collective usual, Collective other) {
  Members members = MakeInProcessGroup(3, {"cpu:0", "cpu:1", "cpu:2"});
  return OneFailureOf(members, [&](Communicator& member) {
    std::vector<double> in(4096), out(4096);
    Collective call = member.rank() == 1 ? other : usual;
    call.input = in.data();
    call.output = out.data();
    return member.Run(call, ForMs(60'000));
  });
}

TEST(InProcess, NamesWhoCalledAnotherCollective) {
  const Collective usual = {.count = 512, .tag = 9, .where = "step 40, train.c:88"};
  Collective sum = usual;
  sum.kind = CollectiveKind::kAllReduce;
  Collective other = sum;
  other.count = 1024;
  EXPECT_EQ(
      "members of a group called different collectives: rank 1 (cpu:1) called all_reduce (sum) of 1024 f32, tag 9, at step 40, "
      "train.c:88; rank 0 (cpu:0) and rank 2 (cpu:2) called all_reduce (sum) of 512 f32, tag 9, at step 40, train.c:88",
      Mismatch(sum, other).message());
  EXPECT_EQ(absl::StatusCode::kFailedPrecondition, Mismatch(sum, other).code());
  other = sum;
  other.dtype = DType::kF64;
  EXPECT_THAT(Mismatch(sum, other).message(), HasSubstr("rank 1 (cpu:1) called all_reduce (sum) of 512 f64"));
  other = sum;
  other.reduction = Reduction::kMax;
  EXPECT_THAT(Mismatch(sum, other).message(), HasSubstr("rank 1 (cpu:1) called all_reduce (max) of 512 f32"));
  other = sum;
  other.kind = CollectiveKind::kAllGather;
  EXPECT_THAT(Mismatch(sum, other).message(), HasSubstr("rank 1 (cpu:1) called all_gather of 512 f32"));
  other = sum;
  other.tag = 10;
  EXPECT_THAT(Mismatch(sum, other).message(), HasSubstr("of 512 f32, tag 10"));
  other.count = 1;  // small against large
  EXPECT_THAT(Mismatch(sum, other).message(), HasSubstr("all_reduce (sum) of 1 f32, tag 10"));
  Collective from = usual;
  from.kind = CollectiveKind::kBroadcast;
  other = from;
  other.root = 2;
  EXPECT_THAT(Mismatch(from, other).message(), HasSubstr("rank 1 (cpu:1) called broadcast of 512 f32 from rank 2"));
  const Pair one[] = {{0, 1}}, two[] = {{1, 0}};
  Collective permute = usual;
  permute.kind = CollectiveKind::kPermute;
  permute.pairs = one;
  other = permute;
  other.pairs = two;
  EXPECT_EQ(absl::StatusCode::kFailedPrecondition, Mismatch(permute, other).code());
}

TEST(InProcess, NamesWhoCalledInAnotherOrder) {
  Members members = MakeInProcessGroup(2);
  const absl::Status status = OneFailureOf(members, [&](Communicator& member) {
    float in = 1, out = 0;
    Collective first = {.kind = CollectiveKind::kAllReduce, .count = 1, .tag = 1, .input = &in, .output = &out};
    Collective second = {.kind = CollectiveKind::kBroadcast, .count = 1, .tag = 2, .input = &in, .output = &out};
    if (member.rank() == 1) std::swap(first, second);
    WEFT_RETURN_IF_ERROR(member.Run(first, ForMs(60'000)));
    return member.Run(second, ForMs(60'000));
  });
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("called all_reduce (sum) of 1 f32, tag 1"), HasSubstr("called broadcast of 1 f32")));
}

TEST(InProcess, SaysWhoDidNotComeAndWhatItDidBefore) {
  Members members = MakeInProcessGroup(3);
  ASSERT_TRUE(RunAll(members, [](Communicator& member) { return member.Run({.tag = 6}); })[0].ok());
  const int64_t began = MonotonicNow();
  std::vector<absl::Status> outcomes = RunAll(members, [](Communicator& member) {
    if (member.rank() == 1) {
      test::SleepMs(300);
      return member.Run({.tag = 7});
    }
    return member.Run({.tag = 7}, ForMs(member.rank() == 0 ? 50 : 100'000));
  });
  EXPECT_LT(MonotonicNow() - began, 30'000'000'000);
  EXPECT_EQ(
      "rank 1 did not come to barrier, tag 7 before the deadline; rank 0 and rank 2 waited there. The last call of rank 1: barrier, tag 6",
      outcomes[0].message());
  EXPECT_EQ(absl::StatusCode::kDeadlineExceeded, outcomes[0].code());
  EXPECT_EQ(outcomes[0], outcomes[1]);
  EXPECT_EQ(outcomes[0], outcomes[2]);
}

TEST(InProcess, EndsAllWithTheErrorOfTheOneThatFails) {
  Members members = MakeInProcessGroup(4);
  std::vector<absl::Status> outcomes = RunAll(members, [](Communicator& member) {
    if (member.rank() != 2) return member.Run({});
    test::SleepMs(30);
    member.Abort(absl::DataLossError("rank 2 lost its disk"));
    return member.Run({});
  });
  for (const absl::Status& status : outcomes) EXPECT_EQ(absl::DataLossError("rank 2 lost its disk"), status);
}

TEST(InProcess, EndsAllWhenOneIsCancelled) {
  Members members = MakeInProcessGroup(3, {"cpu:0", "cpu:1", "cpu:2"});
  auto requests = std::make_shared<std::atomic<uint32_t>>(0);
  const CancelToken token(requests);
  std::thread canceller([&] {
    test::SleepMs(50);
    requests->fetch_add(1);
  });
  const absl::Status status = OneFailureOf(members, [&](Communicator& member) {
    if (member.rank() == 2) {
      while (member.Poisoned().ok()) test::SleepMs(1);
      return member.Poisoned();
    }
    return member.Run({.tag = 3},
                      member.rank() == 1 ? Patience{.cancel = &token, .began_ns = MonotonicNow()} : Patience());
  });
  canceller.join();
  EXPECT_EQ(absl::StatusCode::kCancelled, status.code());
  EXPECT_THAT(status.message(),
              HasSubstr("rank 2 (cpu:2) did not come to barrier, tag 3 before weft_cancel ended the wait of rank 1 (cpu:1); rank 0 (cpu:0) and rank 1 (cpu:1) waited there"));
}

TEST(InProcess, EndsAllWhenOneLeaves) {
  Members members = MakeInProcessGroup(3);
  std::vector<absl::Status> outcomes = RunAll(members, [&](Communicator& member) {
    WEFT_RETURN_IF_ERROR(member.Run({.tag = 1}));
    if (member.rank() != 1) return member.Run({.tag = 2});
    members[1].reset();
    return absl::OkStatus();
  });
  EXPECT_EQ(outcomes[0], outcomes[2]);
  EXPECT_EQ(UserErrorOf(absl::StatusCode::kUnavailable, "rank 1 left the group; its last call was barrier, tag 1"),
            outcomes[0]);
}

TEST(InProcess, EndsAllWhenOneLeavesBetweenStartAndWait) {
  Members members = MakeInProcessGroup(2);
  std::vector<float> in(10'000), out(10'000), other_out(10'000);
  Collective call = {.kind = CollectiveKind::kAllReduce, .count = 10'000, .input = in.data()};
  call.output = out.data();
  ASSERT_TRUE(members[0]->Start(call).ok());
  members[0].reset();
  call.output = other_out.data();
  EXPECT_EQ(absl::StatusCode::kUnavailable, members[1]->Run(call).code());
}

absl::Status BadCall(Collective call) {
  Members members = MakeInProcessGroup(2);
  return OneFailureOf(members,
                      [&](Communicator& member) { return member.Run(member.rank() == 1 ? call : Collective()); });
}

TEST(InProcess, RefusesCallsThatNobodyMayMake) {
  std::vector<float> room(64);
  const Collective good = {
      .kind = CollectiveKind::kAllReduce, .count = 8, .input = room.data(), .output = room.data() + 32};
  Collective call = good;
  call.reduction = Reduction::kAnd;
  EXPECT_EQ(UserError("rank 1: all_reduce: f32 has no and"), BadCall(call));
  call = good;
  call.count = -1;
  EXPECT_EQ(UserError("rank 1: all_reduce: -1 elements of f32 for each of 2 members are not countable"), BadCall(call));
  call.count = INT64_MAX / 2;
  EXPECT_THAT(BadCall(call).message(), HasSubstr("are not countable"));
  call = good;
  call.input = nullptr;
  EXPECT_EQ(UserError("rank 1: all_reduce: the input is null"), BadCall(call));
  call = good;
  call.output = room.data() + 4;
  EXPECT_EQ(UserError("rank 1: all_reduce: input and output overlap"), BadCall(call));
  call.kind = CollectiveKind::kAllToAll;
  call.output = call.input == nullptr ? nullptr : room.data();
  EXPECT_EQ(UserError("rank 1: all_to_all: input and output overlap"), BadCall(call));
  call = good;
  call.output = reinterpret_cast<std::byte*>(room.data()) + 130;
  EXPECT_EQ(UserError("rank 1: all_reduce: the output does not lie at a multiple of 4 bytes"), BadCall(call));
  call = good;
  call.kind = CollectiveKind::kBroadcast;
  call.root = 2;
  EXPECT_EQ(UserError("rank 1: broadcast: the root 2 is no rank of a group of 2"), BadCall(call));
  call = good;
  call.dtype = static_cast<DType>(77);
  EXPECT_EQ(UserError("rank 1: all_reduce: there is no element type of number 77"), BadCall(call));
  call.kind = static_cast<CollectiveKind>(99);
  EXPECT_EQ(UserError("rank 1: there is no collective of number 99"), BadCall(call));
  const Pair beyond[] = {{0, 2}}, twice[] = {{0, 1}, {0, 0}}, to_one[] = {{0, 1}, {1, 1}};
  call = good;
  call.kind = CollectiveKind::kPermute;
  call.pairs = beyond;
  EXPECT_EQ(UserError("rank 1: collective_permute: the pair (0, 2) names a rank that a group of 2 has not"),
            BadCall(call));
  call.pairs = twice;
  EXPECT_EQ(UserError("rank 1: collective_permute: rank 0 sends twice"), BadCall(call));
  call.pairs = to_one;
  EXPECT_EQ(UserError("rank 1: collective_permute: rank 1 is sent to twice"), BadCall(call));
}

TEST(InProcess, KeepsStartAndWaitApart) {
  Members members = MakeInProcessGroup(1);
  EXPECT_EQ(absl::StatusCode::kFailedPrecondition, members[0]->Wait({}).code());
  ASSERT_TRUE(members[0]->Start({}).ok());
  EXPECT_EQ(absl::StatusCode::kFailedPrecondition, members[0]->Start({}).code());
  EXPECT_TRUE(members[0]->Wait({}).ok());
  EXPECT_TRUE(members[0]->Run({}).ok());
}

// Aborts at random moments of random calls: everybody ends with one status, and nobody touches freed buffers (a sanitizer looks).
TEST(InProcess, SurvivesAThousandAborts) {
  std::mt19937 random(11);
  const int rounds = weft::test::kSanitized ? 200 : 1000;
  for (int round = 0; round < rounds; ++round) {
    const int size = 2 + round % 3;
    Members members = MakeInProcessGroup(size);
    const auto after_us = static_cast<int>(random() % 400);
    const auto culprit = static_cast<size_t>(random() % static_cast<unsigned>(size));
    std::thread aborter([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(after_us));
      members[culprit]->Abort(absl::AbortedError("round"));
    });
    const auto outcomes = RunAll(members, [&](Communicator& member) {
      for (uint64_t tag = 0;; ++tag) {
        const int64_t count = tag % 3 == 0 ? 20'000 : 16;
        std::vector<float> in(static_cast<size_t>(count), 1.0f), out(static_cast<size_t>(count), 0.0f);
        Collective call = {
            .kind = CollectiveKind::kAllReduce, .count = count, .tag = tag, .input = in.data(), .output = out.data()};
        const absl::Status status = member.Run(call, ForMs(60'000));
        if (!status.ok()) return status;
        for (const float x : out) {
          if (x != static_cast<float>(size)) return absl::DataLossError("a wrong sum");
        }
      }
    });
    aborter.join();
    for (const absl::Status& status : outcomes) ASSERT_EQ(absl::AbortedError("round"), status) << "round " << round;
  }
}

TEST(InProcess, AnswersInTheChildOfAForkThatItCannotGoOn) {
  if (weft::test::kSanitized) GTEST_SKIP() << "a sanitizer's own threads do not survive fork";
  Members members = MakeInProcessGroup(2);
  const pid_t child = fork();
  if (child == 0) {
    const absl::Status status = members[0]->Run({});
    members.clear();
    _exit(status.code() == absl::StatusCode::kFailedPrecondition ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_EQ(0, status);
}

}  // namespace
}  // namespace weft::distributed
