// Groups of processes, over memory that they share and over TCP: values, and that all of them end soon, with one text, when one dies, stops or
// differs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <fstream>
#include <random>

#include "distributed/members.h"
#include "distributed/plain.h"
#include "distributed/processes.h"
#include "src/distributed/shared_memory.h"
#include "src/distributed/tcp.h"
#include "support/seeds.h"

namespace weft::distributed {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using test::Ended;
using test::Part;
using test::Process;
using test::Say;
using test::Variable;

// --- The parts that processes play ----------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<Communicator>> JoinAsPart() {
  const std::string name = Variable("PART_NAME"), token = Variable("PART_TOKEN");
  const int rank = std::atoi(Variable("PART_RANK").c_str()), size = std::atoi(Variable("PART_SIZE").c_str());
  const Patience patience = test::ForMs(std::atoll(Variable("PART_MS").c_str()));
  const int port = std::atoi(Variable("PART_PORT").c_str());
  if (port == 0) {
    return JoinSharedMemoryGroup(
        {.name = name, .token = token, .rank = rank, .size = size, .label = "", .patience = patience});
  }
  return JoinTcpGroup(
      {.host = "localhost", .port = port, .token = token, .rank = rank, .size = size, .patience = patience});
}

Patience PatienceOfPart() { return test::ForMs(std::atoll(Variable("PART_MS").c_str())); }

// Joins, acts, and says the outcome's text: 0 for OK, 1 for an error.
int Join(absl::Status (*act)(Communicator&)) {
  absl::Status outcome;
  {
    auto member = JoinAsPart();
    outcome = member.ok() ? act(**member) : member.status();
  }
  Say(outcome.ok() ? "OK" : outcome.ToString());
  return outcome.ok() ? 0 : 1;
}

absl::Status CheckValues(Communicator& member, Collective call) {
  const std::vector<Pair> pairs = {{0, 1}, {member.size() - 1, 0}};
  if (call.kind == CollectiveKind::kPermute && member.size() > 1) call.pairs = pairs;
  std::vector<test::Bytes> inputs;
  for (int rank = 0; rank < member.size(); ++rank) {
    const HostTensor tensor = test::Random(call.dtype, InputCount(call, member.size()), 100 + static_cast<uint64_t>(rank));
    inputs.emplace_back(tensor.bytes().begin(), tensor.bytes().end());
  }
  const auto self = static_cast<size_t>(member.rank());
  test::Bytes output(static_cast<size_t>(OutputCount(call, member.size()) * BytesOf(call.dtype)), std::byte{0xEE});
  call.input = inputs[self].data();
  call.output = output.data();
  WEFT_RETURN_IF_ERROR(member.Run(call, PatienceOfPart()));
  if (test::SameElements(call.dtype, output, test::PlainOutputs(call, inputs)[self])) return absl::OkStatus();
  return absl::DataLossError(RecordOf(call).Text());
}

const Part kValues("values", [] {
  return Join([](Communicator& member) {
    uint64_t tag = 0;
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kC128}) {
      for (size_t kind = 0; kind < std::size(kCollectiveNames); ++kind) {
        // Small, one piece, and several: a piece is a MiB.
        for (const int64_t count : {0, 3, 5000, 300'001}) {
          WEFT_RETURN_IF_ERROR(CheckValues(member, {.kind = static_cast<CollectiveKind>(kind),
                                                    .dtype = dtype,
                                                    .count = count,
                                                    .tag = ++tag,
                                                    .root = member.size() - 1}));
        }
      }
    }
    return absl::OkStatus();
  });
});

// Rank 1 sends itself a signal at its fourth barrier.
absl::Status Barriers(Communicator& member, int signal) {
  for (uint64_t tag = 1; tag <= 4; ++tag) {
    if (tag == 4 && member.rank() == 1) raise(signal);
    Collective barrier;
    barrier.tag = tag;
    barrier.where = "train.c:88";
    WEFT_RETURN_IF_ERROR(member.Run(barrier, PatienceOfPart()));
  }
  return absl::OkStatus();
}
const Part kDies("dies", [] { return Join([](Communicator& member) { return Barriers(member, SIGKILL); }); });
const Part kStops("stops", [] { return Join([](Communicator& member) { return Barriers(member, SIGSTOP); }); });
const Part kExits("exits", [] {
  return Join([](Communicator& member) {
    if (member.rank() == 1) _exit(0);
    return member.Run({}, PatienceOfPart());
  });
});
const Part kDiffers("differs", [] {
  return Join([](Communicator& member) {
    return CheckValues(member, {.kind = CollectiveKind::kAllReduce, .count = member.rank() == 1 ? 1024 : 512});
  });
});
const Part kForks("forks", [] {
  return Join([](Communicator& member) -> absl::Status {
    const pid_t child = fork();
    if (child == 0) _exit(member.Run({}).code() == absl::StatusCode::kFailedPrecondition ? 0 : 1);
    int status = -1;
    waitpid(child, &status, 0);
    if (status != 0) return absl::UnknownError("the child was not refused");
    return member.Run({}, PatienceOfPart());
  });
});
// Until somebody kills one: sums of ones, large and small in turn.
const Part kSums("sums", [] {
  return Join([](Communicator& member) {
    for (uint64_t tag = 0;; ++tag) {
      const int64_t count = tag % 3 == 0 ? 30'000 : 16;
      const std::vector<float> in(static_cast<size_t>(count), 1.0f);
      std::vector<float> out(static_cast<size_t>(count));
      WEFT_RETURN_IF_ERROR(member.Run(
          {.kind = CollectiveKind::kAllReduce, .count = count, .tag = tag, .input = in.data(), .output = out.data()}, PatienceOfPart()));
      for (const float x : out) {
        if (x != static_cast<float>(member.size())) return absl::DataLossError("a wrong sum");
      }
    }
  });
});

// --- The tests ------------------------------------------------------------------------------------------------

// One that nobody listens at now.
int FreePort() {
  const OwnedFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  socklen_t length = sizeof address;
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) abort();
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) abort();
  return ntohs(address.sin_port);
}

struct Cast {
  std::string part;
  bool tcp = false;
  int size = 3;
  int64_t ms = 30'000;
  int port = tcp ? FreePort() : 0;
  std::string name = absl::StrCat("test-", getpid(), "-", ++count);
  std::string token = "secret";
  static int count;

  Process Start(int rank, int size_said = 0) const {
    return Process({{"WEFT_TEST_PART", part},
                    {"PART_NAME", name},
                    {"PART_PORT", std::to_string(port)},
                    {"PART_TOKEN", token},
                    {"PART_RANK", std::to_string(rank)},
                    {"PART_SIZE", std::to_string(size_said == 0 ? size : size_said)},
                    {"PART_MS", std::to_string(ms)}});
  }
  std::vector<Process> StartAll() const {
    std::vector<Process> processes;
    for (int rank = 0; rank < size; ++rank) processes.push_back(Start(rank));
    return processes;
  }
};
int Cast::count = 0;

std::vector<Ended> WaitAll(std::vector<Process>& processes) {
  std::vector<Ended> ended;
  for (Process& process : processes) ended.push_back(process.Wait());
  return ended;
}

// The parameter: over TCP.
class Processes : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Engines, Processes, ::testing::Bool(), [](const auto& info) { return info.param ? "Tcp" : "SharedMemory"; });

TEST_P(Processes, GivesWhatPlainLoopsGive) {
  for (const int size : {1, 2, 4}) {
    std::vector<Process> processes = Cast{.part = "values", .tcp = GetParam(), .size = size, .ms = 100'000}.StartAll();
    for (const Ended& ended : WaitAll(processes)) EXPECT_EQ("OK", ended.said);
  }
}

TEST_P(Processes, SaysWhoDied) {
  const int64_t began = MonotonicNow();
  std::vector<Process> processes = Cast{.part = "dies", .tcp = GetParam()}.StartAll();
  const std::string killed = absl::StrCat("rank 1 (process ", processes[1].pid());
  const std::vector<Ended> ended = WaitAll(processes);
  EXPECT_LT(MonotonicNow() - began, 20'000'000'000);
  EXPECT_EQ(SIGKILL, ended[1].signal());
  EXPECT_EQ(ended[0].said, ended[2].said);
  EXPECT_THAT(ended[0].said, AllOf(StartsWith("UNAVAILABLE: " + killed), HasSubstr(" ended while rank "), HasSubstr("waited in barrier, tag 4, at train.c:88"),
                                   HasSubstr("; its last call was barrier, tag 3, at train.c:88")));
}

TEST_P(Processes, SaysWhoExited) {
  std::vector<Process> processes = Cast{.part = "exits", .tcp = GetParam()}.StartAll();
  const std::vector<Ended> ended = WaitAll(processes);
  EXPECT_THAT(ended[0].said, AllOf(StartsWith("UNAVAILABLE: rank 1 (process "), HasSubstr(" ended while ")));
  EXPECT_EQ(ended[0].said, ended[2].said);
}

TEST_P(Processes, GivesUpOnOneThatIsStoppedAtTheDeadline) {
  std::vector<Process> processes = Cast{.part = "stops", .tcp = GetParam(), .ms = 3000}.StartAll();
  const Ended first = processes[0].Wait(), third = processes[2].Wait();
  EXPECT_EQ(first.said, third.said);
  EXPECT_THAT(first.said, AllOf(StartsWith("DEADLINE_EXCEEDED: rank 1 (process "), HasSubstr("did not come to barrier, tag 4"),
                                HasSubstr("The last call of rank 1 (process ")));
  // It gets the same when it goes on.
  EXPECT_EQ(first.said, processes[1].Wait(SIGCONT).said);
}

TEST_P(Processes, NamesWhoCallsAnotherCollective) {
  std::vector<Process> processes = Cast{.part = "differs", .tcp = GetParam()}.StartAll();
  const std::vector<Ended> ended = WaitAll(processes);
  EXPECT_THAT(ended[0].said, AllOf(StartsWith("FAILED_PRECONDITION: members of a group called different collectives: rank 1 (process "),
                                   HasSubstr("called all_reduce (sum) of 1024 f32"), HasSubstr("called all_reduce (sum) of 512 f32")));
  EXPECT_EQ(ended[0].said, ended[1].said);
  EXPECT_EQ(ended[0].said, ended[2].said);
}

TEST_P(Processes, NamesWhoDoesNotJoin) {
  const Cast cast = {.part = "values", .tcp = GetParam(), .size = 4, .ms = 1000};
  Process first = cast.Start(0), third = cast.Start(2);
  const std::string said = first.Wait().said;
  EXPECT_THAT(said, AllOf(StartsWith("DEADLINE_EXCEEDED: ranks 1, 3 did not come to "), HasSubstr(" of 4 before the deadline")));
  EXPECT_EQ(said, third.Wait().said);
  Process alone = cast.Start(1);
  const std::string without = GetParam() ? absl::StrCat("rank 0 was not found at localhost:", cast.port) : "rank 0 did not come to the group of 4";
  EXPECT_THAT(alone.Wait().said, AllOf(StartsWith("DEADLINE_EXCEEDED: " + without), HasSubstr(GetParam() ? "" : cast.name)));
}

TEST_P(Processes, TurnsAwayWhoIsNoMember) {
  const Cast cast = {.part = "values", .tcp = GetParam(), .size = 2, .ms = 100'000};
  Cast other = cast;
  other.token = "another";
  Process first = cast.Start(0);
  EXPECT_EQ("PERMISSION_DENIED: the token is not the one of this job", other.Start(1).Wait().said);
  EXPECT_THAT(cast.Start(5).Wait().said, StartsWith(absl::StrCat("INVALID_ARGUMENT: rank 5 is not below the size of the ", GetParam() ? "job" : "group", ", 2")));
  EXPECT_THAT(cast.Start(0).Wait().said, AllOf(StartsWith("ALREADY_EXISTS: "), HasSubstr("another process is rank 0")));
  Process second = cast.Start(1);
  EXPECT_EQ("OK", second.Wait().said);
  EXPECT_EQ("OK", first.Wait().said);
}

TEST_P(Processes, RefusesASecondProcessOfOneRank) {
  const Cast cast = {.part = "values", .tcp = GetParam(), .size = 3, .ms = 100'000};
  Process first = cast.Start(0), second = cast.Start(1), again = cast.Start(1);
  test::SleepMs(200);
  Process third = cast.Start(2);
  const std::string said[] = {second.Wait().said, again.Wait().said};
  EXPECT_THAT(said, ::testing::UnorderedElementsAre("OK", StartsWith("ALREADY_EXISTS: another process is rank 1 of this ")));
  EXPECT_EQ("OK", first.Wait().said);
  EXPECT_EQ("OK", third.Wait().said);
}

TEST_P(Processes, FailsWhereMembersDisagreeOnTheSize) {
  const Cast cast = {.part = "values", .tcp = GetParam(), .size = 2};
  Process first = cast.Start(0), second = cast.Start(1, 3);
  const std::string said = second.Wait().said;
  EXPECT_THAT(said, AllOf(StartsWith("FAILED_PRECONDITION: rank 1 (process "), ::testing::ContainsRegex("says that the (group|job) has 3 (members|processes), rank 0 says 2")));
  EXPECT_EQ(said, first.Wait().said);
}

TEST_P(Processes, RefusesTheChildOfAFork) {
  if (weft::test::kSanitized) GTEST_SKIP() << "a sanitizer's own threads do not survive fork";
  std::vector<Process> processes = Cast{.part = "forks", .tcp = GetParam(), .size = 2}.StartAll();
  for (const Ended& ended : WaitAll(processes)) EXPECT_EQ("OK", ended.said);
}

// Kills at random moments, also while they join: the others end with the one text, or had no member to miss.
TEST_P(Processes, SurvivesRandomKills) {
  std::mt19937 random(5);
  const int rounds = weft::test::EveryCase() ? 1000 : weft::test::kSanitized ? 5 : 6;
  for (int round = 0; round < rounds; ++round) {
    std::vector<Process> processes = Cast{.part = "sums", .tcp = GetParam(), .ms = 2000}.StartAll();
    const size_t victim = random() % 3;
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
    processes[victim].Signal(round % 4 == 0 ? SIGTERM : SIGKILL);
    const std::vector<Ended> ended = WaitAll(processes);
    for (size_t rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      EXPECT_EQ(1, ended[rank].code());
      // A member whose end was seen ends the call; the deadline is for one that was killed before it came. No clock decides: others run, too.
      const bool never_came = ended[rank].said.find("did not come to ") != std::string::npos || ended[rank].said.find("others are missing") != std::string::npos || ended[rank].said.find("was not found") != std::string::npos || ended[rank].said.find("of this job") != std::string::npos ||
                              ended[rank].said.find(" of a job") != std::string::npos;
      EXPECT_TRUE(never_came || ended[rank].said.starts_with("UNAVAILABLE: ")) << ended[rank].said;
    }
  }
}

TEST(SharedMemory, LeavesNothingBehind) {
  const Cast cast = {.part = "values", .size = 2, .ms = 100'000};
  std::vector<Process> processes = cast.StartAll();
  for (const Ended& ended : WaitAll(processes)) EXPECT_EQ("OK", ended.said);
  std::ifstream sockets("/proc/net/unix");
  const std::string all((std::istreambuf_iterator<char>(sockets)), std::istreambuf_iterator<char>());
  EXPECT_EQ(std::string::npos, all.find("weft/" + cast.name + "\n"));
}

}  // namespace
}  // namespace weft::distributed
