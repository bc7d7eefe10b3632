// Who a process is, by the variables of each way of starting one.
#include "src/distributed/job_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "src/distributed/job.h"

namespace weft::distributed {
namespace {

using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

absl::StatusOr<JobPlace> Find(const Variables& variables, const JobWish& wish = {}) {
  return FindJobPlace(wish, [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

void ExpectPlace(const Variables& variables, int rank, int size, int local_rank, int local_size, const std::string& source) {
  const auto place = Find(variables);
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(rank, place->rank);
  EXPECT_EQ(size, place->size);
  EXPECT_EQ(local_rank, place->local_rank);
  EXPECT_EQ(local_size, place->local_size);
  EXPECT_EQ(source, place->source);
}

TEST(JobPlace, ReadsWhoWatches) {
  const Variables place = {{"WEFT_RANK", "0"}, {"WEFT_WORLD_SIZE", "2"}};
  EXPECT_EQ(0, Find(place)->watch.after_ns());
  Variables watched = place;
  watched["WEFT_JOB_WATCH"] = "1500 watch-1";
  EXPECT_EQ(1'500'000'000, Find(watched)->watch.after_ns());
  for (const char* const text : {"x", "10", "10 ", "0 name", "-1 name", " name"}) {
    watched["WEFT_JOB_WATCH"] = text;
    EXPECT_THAT(Find(watched).status().message(), HasSubstr(std::string("WEFT_JOB_WATCH is '") + text + "'"));
  }
}

TEST(JobPlace, ReadsTheVariablesOfEachLauncher) {
  ExpectPlace({{"WEFT_RANK", "2"}, {"WEFT_WORLD_SIZE", "4"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}}, 2, 4, 2, 4,
              "weft launch: WEFT_RANK=2 WEFT_WORLD_SIZE=4");
  ExpectPlace({{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}}, 5, 8, 1, 4,
              "torchrun: RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4");
  ExpectPlace({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}, 1, 2, 1, 2,
              "Open MPI: OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2");
  ExpectPlace({{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}}, 3, 4, 1, 2,
              "MPICH or Intel MPI: PMI_RANK=3 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2");
  ExpectPlace({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "3"}, {"SLURM_JOB_ID", "9"}}, 1, 3, 1, 3,
              "Slurm: SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=3");
  ExpectPlace({{"JOB_COMPLETION_INDEX", "1"}, {"WEFT_WORLD_SIZE", "3"}}, 1, 3, 0, 1,
              "Kubernetes indexed job: JOB_COMPLETION_INDEX=1 WEFT_WORLD_SIZE=3");
  ExpectPlace({{"TPU_WORKER_ID", "1"}, {"TPU_WORKER_HOSTNAMES", "a,b,c,d"}}, 1, 4, 0, 1,
              "TPU VM: TPU_WORKER_ID=1 TPU_WORKER_HOSTNAMES=a,b,c,d");
  ExpectPlace({}, 0, 1, 0, 1, "nothing that says otherwise: 1 of 1");
  ExpectPlace({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}, 0, 1, 0, 1, "nothing that says otherwise: 1 of 1");
}

TEST(JobPlace, SaysWhichRulesDoNotApply) {
  const auto place = Find({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  ASSERT_TRUE(place.ok());
  EXPECT_THAT(place->passed, ::testing::ElementsAre("weft launch: no WEFT_RANK", "torchrun: no RANK"));
}

TEST(JobPlace, KnowsTheJobAndItsRestartsAndShowsNoToken) {
  const auto place = Find({{"WEFT_RANK", "0"}, {"WEFT_WORLD_SIZE", "2"}, {"WEFT_JOB", "j7"}, {"WEFT_JOB_TOKEN", "secret"}, {"WEFT_RESTART", "3"}});
  ASSERT_TRUE(place.ok());
  EXPECT_EQ("j7", place->id);
  EXPECT_EQ("secret", place->token);
  EXPECT_EQ(3, place->incarnation);
  EXPECT_THAT(place->source, ::testing::Not(HasSubstr("secret")));
  const auto torch = Find({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "29500"}});
  ASSERT_TRUE(torch.ok());
  EXPECT_EQ("h-29500", torch->id);
}

TEST(JobPlace, TakesWhatTheCallerSaysFirst) {
  const auto place = Find({{"RANK", "5"}, {"WORLD_SIZE", "8"}}, {.rank = 1, .size = 2});
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(1, place->rank);
  EXPECT_EQ("the caller: rank 1 of 2", place->source);
}

TEST(JobPlace, RefusesWhatDoesNotFit) {
  EXPECT_EQ(UserError("torchrun: RANK is set and WORLD_SIZE is not: a process must know how many there are; set both or none of them"),
            Find({{"RANK", "1"}}).status());
  EXPECT_EQ(UserError("torchrun: WORLD_SIZE='two' is not a number from 0 on"), Find({{"RANK", "1"}, {"WORLD_SIZE", "two"}}).status());
  EXPECT_EQ(UserError("torchrun: RANK=2 WORLD_SIZE=2: rank 2 is not below the number of processes, 2"),
            Find({{"RANK", "2"}, {"WORLD_SIZE", "2"}}).status());
  EXPECT_THAT(Find({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "3"}, {"LOCAL_WORLD_SIZE", "2"}}).status().message(),
              HasSubstr("local rank 3 of 2 does not suit rank 1 of 2"));
  EXPECT_THAT(Find({}, {.rank = 1}).status().message(), HasSubstr("a rank was given without the number of processes"));
  EXPECT_THAT(Find({}, {.size = 2}).status().message(), HasSubstr("a number of processes was given without a rank"));
  EXPECT_THAT(Find({}, {.rank = 2, .size = 2}).status().message(), HasSubstr("rank 2 is not below the number of processes, 2"));
}

TEST(Job, RunsAloneAndEndsWhenItIsLeft) {
  auto job = Job::Join(*Find({}), {});
  ASSERT_TRUE(job.ok()) << job.status();
  float in = 3, out = 0;
  EXPECT_TRUE((*job)->Run({.kind = CollectiveKind::kAllReduce, .count = 1, .input = &in, .output = &out}, {}).ok());
  EXPECT_EQ(3, out);
  EXPECT_TRUE((*job)->Leave({}).ok());
  EXPECT_EQ(absl::StatusCode::kFailedPrecondition, (*job)->Run({}, {}).code());
}

TEST(Job, OfSeveralHostsNeedsAnAddress) {
  const std::map<std::string, std::string> variables = {{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}};
  const absl::Status status = Job::Join(*Find(variables), {}).status();
  EXPECT_EQ(absl::StatusCode::kInvalidArgument, status.code());
  EXPECT_THAT(status.message(), AllOf(HasSubstr("8 processes of which 4 are on this host (torchrun: RANK=5"), HasSubstr("WEFT_COORDINATOR=host:port")));
  const auto with = [&](std::map<std::string, std::string> more, const JobWish& wish = {}) {
    more.insert(variables.begin(), variables.end());
    return Find(more, wish)->coordinator;
  };
  EXPECT_EQ("a:1235", with({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1234"}}));
  EXPECT_EQ("b:5", with({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1234"}, {"WEFT_COORDINATOR", "b:5"}}));
  EXPECT_EQ("c:6", with({{"WEFT_COORDINATOR", "b:5"}}, {.coordinator = "c:6"}));
  EXPECT_EQ("h0:29555", Find({{"TPU_WORKER_ID", "1"}, {"TPU_WORKER_HOSTNAMES", "h0,h1"}})->coordinator);
  for (const char* const wrong : {"here", "here:x", ":1", "here:0", "here:70000"}) {
    JobPlace place = *Find(variables);
    place.coordinator = wrong;
    EXPECT_EQ(absl::StatusCode::kInvalidArgument, Job::Join(place, {}).status().code()) << wrong;
  }
}

}  // namespace
}  // namespace weft::distributed
