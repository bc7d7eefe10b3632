// See job_place.h.
#include "src/distributed/job_place.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace weft::distributed {
namespace {

// One way of starting processes. Names of variables; null where there is none.
struct Rule {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  const char* restarts;
  const char* ids[2];  // together name the job; else its parent process does
  const char* token;
  bool one_a_host;   // local rank 0 of 1
  bool lists_hosts;  // `size` is a list with commas
};

// MPI's processes of one host have one parent, which has no other job. Slurm's size is srun's: a batch script has SLURM_PROCID, too,
// and is no step.
constexpr Rule kRules[] = {
    {"weft launch",
     "WEFT_RANK",
     "WEFT_WORLD_SIZE",
     "WEFT_LOCAL_RANK",
     "WEFT_LOCAL_SIZE",
     "WEFT_RESTART",
     {"WEFT_JOB", nullptr},
     "WEFT_JOB_TOKEN",
     false,
     false},
    {"torchrun",
     "RANK",
     "WORLD_SIZE",
     "LOCAL_RANK",
     "LOCAL_WORLD_SIZE",
     "TORCHELASTIC_RESTART_COUNT",
     {"MASTER_ADDR", "MASTER_PORT"},
     "TORCHELASTIC_RUN_ID",
     false,
     false},
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     nullptr,
     {nullptr, nullptr},
     nullptr,
     false,
     false},
    {"MPICH or Intel MPI",
     "PMI_RANK",
     "PMI_SIZE",
     "MPI_LOCALRANKID",
     "MPI_LOCALNRANKS",
     nullptr,
     {nullptr, nullptr},
     nullptr,
     false,
     false},
    {"Slurm",
     "SLURM_PROCID",
     "SLURM_STEP_NUM_TASKS",
     "SLURM_LOCALID",
     nullptr,
     "SLURM_RESTART_COUNT",
     {"SLURM_JOB_ID", "SLURM_STEP_ID"},
     nullptr,
     false,
     false},
    {"Kubernetes indexed job",
     "JOB_COMPLETION_INDEX",
     "WEFT_WORLD_SIZE",
     nullptr,
     nullptr,
     nullptr,
     {nullptr, nullptr},
     nullptr,
     true,
     false},
    {"TPU VM",
     "TPU_WORKER_ID",
     "TPU_WORKER_HOSTNAMES",
     nullptr,
     nullptr,
     nullptr,
     {nullptr, nullptr},
     nullptr,
     true,
     true},
    {"TPU VM",
     "CLOUD_TPU_TASK_ID",
     "TPU_WORKER_HOSTNAMES",
     nullptr,
     nullptr,
     nullptr,
     {nullptr, nullptr},
     nullptr,
     true,
     true},
};

using Variable = absl::FunctionRef<const char*(const char*)>;

std::optional<std::string> ValueOf(const char* name, Variable variable) {
  const char* const value = name == nullptr ? nullptr : variable(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

// The parent and when it began: a number that comes again is another process.
std::string ParentProcess() {
  const pid_t parent = getppid();
  std::ifstream file(absl::StrCat("/proc/", parent, "/stat"));
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  const std::vector<std::string> fields = name_end == std::string::npos
                                              ? std::vector<std::string>()
                                              : absl::StrSplit(text.substr(name_end + 1), ' ', absl::SkipEmpty());
  return absl::StrCat("parent-", parent, "-", fields.size() > 19 ? fields[19] : "0");
}

// Reads a rule's numbers, and remembers what it read.
class Reader {
 public:
  Reader(const Rule& rule, Variable variable) : rule_(rule), variable_(variable) {}

  absl::StatusOr<int> Number(const char* name, int otherwise) {
    const std::optional<std::string> text = ValueOf(name, variable_);
    if (!text.has_value()) return otherwise;
    int number = 0;
    if (!absl::SimpleAtoi(*text, &number) || number < 0) {
      return UserError(rule_.name, ": ", name, "='", *text, "' is not a number from 0 on");
    }
    absl::StrAppend(&read_, " ", name, "=", *text);
    return number;
  }
  absl::StatusOr<int> Size() {
    if (!rule_.lists_hosts) return Number(rule_.size, 0);
    const std::string hosts = ValueOf(rule_.size, variable_).value_or("");
    absl::StrAppend(&read_, " ", rule_.size, "=", hosts);
    return static_cast<int>(std::ranges::count(hosts, ',') + 1);
  }
  const std::string& read() const { return read_; }

 private:
  const Rule& rule_;
  const Variable variable_;
  std::string read_;
};

absl::Status CheckPlace(const JobPlace& place) {
  const auto beyond = [](int rank, int size) { return rank < 0 || size < 1 || rank >= size; };
  if (beyond(place.rank, place.size)) {
    return UserError(place.source, ": rank ", place.rank, " is not below the number of processes, ", place.size);
  }
  if (beyond(place.local_rank, place.local_size) || place.local_size > place.size) {
    return UserError(place.source, ": local rank ", place.local_rank, " of ", place.local_size, " does not suit rank ",
                     place.rank, " of ", place.size);
  }
  return absl::OkStatus();
}

// torchrun itself listens at its port; the next one is ours. A list of hosts begins with rank 0's.
constexpr int kUsualPort = 29555;
std::string CoordinatorOf(const Rule& rule, Variable variable) {
  if (const std::optional<std::string> said = ValueOf("WEFT_COORDINATOR", variable)) return *said;
  if (rule.lists_hosts) {
    const std::string hosts = ValueOf(rule.size, variable).value_or("");
    return absl::StrCat(hosts.substr(0, hosts.find(',')), ":", kUsualPort);
  }
  int port = 0;
  const std::string host = ValueOf(rule.ids[0], variable).value_or("");
  if (std::string_view(rule.name) != "torchrun" || host.empty() ||
      !absl::SimpleAtoi(ValueOf(rule.ids[1], variable).value_or(""), &port)) {
    return "";
  }
  return absl::StrCat(host, ":", port + 1);
}

absl::StatusOr<JobPlace> PlaceOf(const Rule& rule, Variable variable) {
  JobPlace place;
  Reader reader(rule, variable);
  WEFT_ASSIGN_OR_RETURN(place.rank, reader.Number(rule.rank, 0));
  WEFT_ASSIGN_OR_RETURN(place.size, reader.Size());
  // A launcher that does not say how many processes share a host means one host.
  const bool one_host = !rule.one_a_host;
  WEFT_ASSIGN_OR_RETURN(place.local_rank, reader.Number(rule.local_rank, one_host ? place.rank : 0));
  WEFT_ASSIGN_OR_RETURN(place.local_size, reader.Number(rule.local_size, one_host ? place.size : 1));
  WEFT_ASSIGN_OR_RETURN(place.incarnation, reader.Number(rule.restarts, 0));
  for (const char* const id : rule.ids) {
    if (const std::optional<std::string> part = ValueOf(id, variable))
      absl::StrAppend(&place.id, place.id.empty() ? "" : "-", *part);
  }
  if (place.id.empty()) place.id = ParentProcess();
  place.token = ValueOf(rule.token, variable).value_or("");
  place.coordinator = CoordinatorOf(rule, variable);
  if (const std::optional<std::string> watch = ValueOf("WEFT_JOB_WATCH", variable)) {
    WEFT_ASSIGN_OR_RETURN(place.watch, Watch::Of(*watch));
  }
  place.source = absl::StrCat(rule.name, ":", reader.read());
  WEFT_RETURN_IF_ERROR(CheckPlace(place));
  return place;
}

absl::StatusOr<JobPlace> PlaceOfWish(const JobWish& wish) {
  JobPlace place;
  place.rank = wish.rank;
  place.size = wish.size;
  place.local_rank = wish.local_rank < 0 ? wish.rank : wish.local_rank;
  place.local_size = wish.local_size < 0 ? wish.size : wish.local_size;
  place.id = wish.id.empty() ? ParentProcess() : wish.id;
  place.token = wish.token;
  place.coordinator = wish.coordinator;
  place.source = absl::StrCat("the caller: rank ", wish.rank, " of ", wish.size);
  WEFT_RETURN_IF_ERROR(CheckPlace(place));
  return place;
}

}  // namespace

absl::StatusOr<JobPlace> FindJobPlace(const JobWish& wish, Variable variable) {
  if (wish.rank >= 0 && wish.size >= 0) return PlaceOfWish(wish);
  if (wish.rank >= 0 || wish.size >= 0) {
    return UserError(wish.rank >= 0 ? "a rank" : "a number of processes", " was given without ",
                     wish.rank >= 0 ? "the number of processes" : "a rank", ": they go together");
  }
  std::vector<std::string> passed;
  for (const Rule& rule : kRules) {
    const bool has_rank = ValueOf(rule.rank, variable).has_value(), has_size = ValueOf(rule.size, variable).has_value();
    if (has_rank && has_size) {
      WEFT_ASSIGN_OR_RETURN(JobPlace place, PlaceOf(rule, variable));
      if (!wish.id.empty()) place.id = wish.id;
      if (!wish.token.empty()) place.token = wish.token;
      if (!wish.coordinator.empty()) place.coordinator = wish.coordinator;
      place.passed = std::move(passed);
      return place;
    }
    // In a batch script Slurm's rank is set, and there are no others.
    const bool may_be_half = std::string_view(rule.name) == "Slurm";
    if (has_rank && !may_be_half) {
      return UserError(rule.name, ": ", rule.rank, " is set and ", rule.size,
                       " is not: a process must know how many there are; set both or none of them");
    }
    passed.push_back(absl::StrCat(rule.name, ": no ", has_rank ? rule.size : rule.rank));
  }
  JobPlace alone;
  alone.id = absl::StrCat("alone-", getpid());
  alone.source = "nothing that says otherwise: 1 of 1";
  alone.passed = std::move(passed);
  return alone;
}

}  // namespace weft::distributed
