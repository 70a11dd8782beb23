#include "app/collective.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "app/commands.h"
#include "app/flags.h"
#include "base/file.h"
#include "base/longest_time.h"
#include "base/sentence.h"
#include "base/text.h"
#include "collective/algorithm.h"
#include "sim/procedure_price.h"

namespace tenuto {

namespace {

using Json = nlohmann::ordered_json;

// With more members, a procedure is too long for a terminal, and a ring too large for memory.
constexpr int32_t kMostMembers = 4096;
constexpr double kMostTensor = 1125899906842624;  // bytes, 2^50

int refuse(const Error& error, std::ostream& errors) {
  errors << "tenuto collective: " << told(error.message) << "\n";
  return error.code == Code::Invalid && error.reach == Reach::Call ? 2 : 3;
}

// A late member and how late it is; 0 where the flag does not say.
struct Late {
  WorkerId member;
  double milliseconds = 0;
};

// "RANK" or "RANK:MS", separated by commas, in the order in which they come.
Result<std::vector<Late>> late_of(const CollectiveOptions& options, bool timed) {
  std::vector<Late> all;
  std::set<int64_t> named;
  const auto entries = entries_of(options.late);
  if (!entries.ok()) return invalid(cat("--late: ", entries.error().message));
  for (const std::string_view item : entries.value()) {
    const size_t colon = item.find(':');
    const auto member = whole_number_of(item.substr(0, colon));
    const auto delay =
        colon == std::string_view::npos ? std::optional(0.0) : number_of(item.substr(colon + 1));
    const bool whole = member && *member >= 0 && *member < options.members;
    if (!whole || !delay || *delay < 0 || *delay > 1e9 ||
        (timed && colon == std::string_view::npos)) {
      return invalid(cat("--late ", options.late, ": expected ",
                         timed ? "RANK:MS with 0 to 1e9 ms" : "RANK",
                         ", separated by commas, with ranks of 0 to ", options.members - 1,
                         ", found '", excerpt(item), "'"));
    }
    if (!named.insert(*member).second) {
      return invalid(
          cat("--late ", options.late, " names member ", *member, " twice: name it once"));
    }
    all.push_back({{static_cast<int32_t>(*member)}, *delay});
  }
  std::stable_sort(all.begin(), all.end(), [](const Late& left, const Late& right) {
    return left.milliseconds < right.milliseconds;
  });
  return all;
}

Result<CollectiveShape> shape_of(const CollectiveOptions& options, const std::vector<Late>& late) {
  if (options.members < 1 || options.members > kMostMembers) {
    return invalid(cat("--members ", options.members, ": expected 1 to ", kMostMembers));
  }
  CollectiveShape shape;
  for (int32_t i = 0; i < options.members; ++i) shape.members.push_back({i});
  shape.chunks = options.chunks;
  shape.root = {options.root};
  for (const Late& of : late) shape.late.push_back(of.member);
  return shape;
}

// The procedure that the flags ask for: a file's, or an algorithm's.
Result<Procedure> procedure_of(const CollectiveOptions& options) {
  if (!options.file.empty()) {
    const auto text = read_file(options.file);
    if (!text.ok()) return text.error();
    return procedure_from_text(text.value(), options.file);
  }
  const auto late = late_of(options, false);
  if (!late.ok()) return late.error();
  const auto shape = shape_of(options, late.value());
  if (!shape.ok()) return shape.error();
  return make_procedure(options.algorithm, shape.value());
}

Json facts_json(const CollectiveFacts& facts) {
  return {{"rounds", facts.rounds},
          {"moves", facts.moves},
          {"messages", facts.messages},
          {"port_messages", facts.port_messages},
          {"most_sent_chunks", facts.most_sent},
          {"most_received_chunks", facts.most_received},
          {"peak_scratch_chunks", facts.peak_scratch}};
}

std::string facts_text(const CollectiveFacts& facts) {
  return cat(facts.rounds, " rounds, ", facts.messages, " messages of ", facts.moves,
             " chunks; a member sends ", facts.most_sent, " and receives ", facts.most_received,
             " at most, needs scratch for ", facts.peak_scratch);
}

// --slow-link FROM-TO:FACTOR,... as links of a cluster; RANK:FACTOR for all links of a member.
Status slow_down(const CollectiveOptions& options, Cluster& cluster) {
  const auto entries = entries_of(options.slow_link);
  if (!entries.ok()) return invalid(cat("--slow-link: ", entries.error().message));
  std::set<std::pair<WorkerId, WorkerId>> named;
  for (const std::string_view item : entries.value()) {
    const size_t dash = item.find('-'), colon = item.find(':');
    const bool one =
        dash == std::string_view::npos || (colon != std::string_view::npos && dash > colon);
    std::optional<int64_t> from, to;
    std::optional<double> factor;
    if (colon != std::string_view::npos) {
      from = whole_number_of(item.substr(0, one ? colon : dash));
      if (!one) to = whole_number_of(item.substr(dash + 1, colon - dash - 1));
      factor = number_of(item.substr(colon + 1));
    }
    const auto member = [&](const std::optional<int64_t>& of) {
      return of && *of >= 0 && *of < options.members;
    };
    const bool ends = member(from) && (one || (member(to) && *from != *to));
    if (!ends || !factor || *factor < 1e-6 || *factor > 1) {
      return invalid(cat("--slow-link ", options.slow_link, ": expected RANK-RANK:FACTOR, or ",
                         "RANK:FACTOR for all links of a member, separated by commas, with a ",
                         "factor of 1e-6 to 1, found '", excerpt(item), "'"));
    }
    const auto ranks = std::minmax(*from, one ? *from : *to);
    if (!named.insert({{static_cast<int32_t>(ranks.first)}, {static_cast<int32_t>(ranks.second)}})
             .second) {
      return invalid(cat("--slow-link ", options.slow_link, " names ", item.substr(0, colon),
                         " twice: name it once"));
    }
    const WorkerId first{static_cast<int32_t>(*from)};
    for (int32_t i = 0; i < options.members; ++i) {
      if (i == first.value || (!one && i != static_cast<int32_t>(*to))) continue;
      for (const auto& [sender, receiver] :
           {std::pair(first, WorkerId{i}), std::pair(WorkerId{i}, first)}) {
        Link link = cluster.link(sender, receiver);
        link.bytes_per_second *= *factor;
        cluster.exceptions[{sender, receiver}] = link;
      }
    }
  }
  return ok();
}

// What `price` works with.
struct Setting {
  CollectiveShape shape;
  std::vector<Duration> arrivals;
  AlphaBeta link;
  Cluster cluster;
};

Result<Setting> setting_of(const CollectiveOptions& options) {
  if (options.bytes < 0 || options.bytes > int64_t{1} << 50) {
    return invalid(cat("--bytes ", options.bytes, ": expected 0 to 2^50"));
  }
  if (!(options.alpha_us >= 0 && options.alpha_us <= 1e9)) {
    return invalid(cat("--alpha-us ", options.alpha_us, ": expected microseconds from 0 to 1e9"));
  }
  if (!(options.gigabytes_per_second >= 1e-9 && options.gigabytes_per_second <= 1e6)) {
    return invalid(cat("--gigabytes-per-second ", options.gigabytes_per_second,
                       ": expected 1e-9, which is a byte per second, to 1e6"));
  }
  const auto late = late_of(options, true);
  if (!late.ok()) return late.error();
  auto shape = shape_of(options, late.value());
  if (!shape.ok()) return shape.error();
  Setting setting;
  setting.arrivals.resize(shape.value().members.size());
  for (const Late& of : late.value()) {
    setting.arrivals[static_cast<size_t>(of.member.value)] = from_milliseconds(of.milliseconds);
  }
  setting.link = {from_milliseconds(options.alpha_us / 1000), options.gigabytes_per_second * 1e9};
  setting.cluster =
      uniform_cluster(options.members, {setting.link.alpha, setting.link.bytes_per_second});
  if (const Status status = slow_down(options, setting.cluster); !status.ok()) {
    return status.error();
  }
  setting.shape = std::move(shape).value();
  return setting;
}

Result<CheapestProcedure> priced(const CollectiveOptions& options, Setting& setting) {
  const Bytes size{options.bytes};
  if (options.algorithm == "auto") {
    if (options.chunks != 0 || options.root >= 0) {
      return invalid("--algorithm auto chooses the chunks and has no root: leave these flags out");
    }
    return cheapest_all_reduce(setting.shape.members, setting.arrivals, size, setting.cluster,
                               setting.link);
  }
  const NamedAlgorithm* algorithm = find_algorithm(options.algorithm);
  std::string reason = "as asked";
  if (algorithm != nullptr && algorithm->card.late_most == 0) setting.shape.late.clear();
  if (algorithm != nullptr && algorithm->card.free_chunks && setting.shape.chunks == 0) {
    const bool slow = options.algorithm == "slow-one";
    setting.shape.chunks =
        (slow ? best_slow_chunks : best_chunks)(options.members, size, setting.link);
    reason = cat("as asked, with the ", setting.shape.chunks, " chunks that are ",
                 slow ? "good for the passes" : "best for a late member's exchange");
  }
  auto made = make_procedure(options.algorithm, setting.shape);
  if (!made.ok()) return made.error();
  auto price = price_collective(made.value().collective, setting.arrivals, size, setting.cluster);
  return CheapestProcedure{std::move(made).value(), std::move(price), std::move(reason)};
}

}  // namespace

int run_collective_list(const CollectiveOptions& options, std::ostream& out) {
  Json all = Json::array();
  std::string text;
  for (const NamedAlgorithm& algorithm : algorithms()) {
    const AlgorithmCard& card = algorithm.card;
    all.push_back({{"name", card.name},
                   {"goal", name_of(card.goal)},
                   {"summary", card.summary},
                   {"rounds", card.rounds},
                   {"bytes", card.bytes},
                   {"phases", card.phases},
                   {"good_for", card.good_for},
                   {"free_chunks", card.free_chunks},
                   {"late_members", card.late_most != 0},
                   {"source", card.source}});
    std::string name = card.name;
    name.resize(std::max<size_t>(name.size() + 1, 24), ' ');
    const std::string margin(24, ' ');
    text += cat(name, card.summary, "\n", margin, name_of(card.goal), "; ", card.phases,
                card.free_chunks ? "; any count of chunks" : "; a chunk for each member", "\n",
                margin, "rounds ", card.rounds, "\n", margin, "bytes ", card.bytes, "\n", margin,
                "good for ", card.good_for, "\n", margin, card.source, "\n");
  }
  if (options.json) {
    out << Json{{"algorithms", std::move(all)}}.dump() << "\n";
    return 0;
  }
  out << text
      << "n members, k chunks, s bytes, w late members, L = log2 n rounded up; bytes are those of "
         "the\nbusiest port, in one direction.\n";
  return 0;
}

int run_collective_show(const CollectiveOptions& options, std::ostream& out, std::ostream& errors) {
  const auto procedure = procedure_of(options);
  if (!procedure.ok()) return refuse(procedure.error(), errors);
  const auto facts = check(procedure.value());
  if (!facts.ok()) return refuse(facts.error(), errors);
  if (!options.picture.empty()) {
    if (const Status status = write_file(options.picture, svg_of(procedure.value()));
        !status.ok()) {
      errors << "tenuto collective: " << status.error().message << "\n";
      return 1;
    }
  }
  if (options.json) {
    Json tree = {{"algorithm", procedure.value().name},
                 {"members", procedure.value().collective.members.size()},
                 {"chunks", procedure.value().collective.chunk_count}};
    tree.update(facts_json(facts.value()));
    tree["text"] = to_text(procedure.value());
    out << tree.dump() << "\n";
    return 0;
  }
  out << to_text(procedure.value()) << "# " << facts_text(facts.value()) << "\n";
  return 0;
}

int run_collective_check(const CollectiveOptions& options, std::ostream& out,
                         std::ostream& errors) {
  const auto procedure = procedure_of(options);
  if (!procedure.ok()) return refuse(procedure.error(), errors);
  const auto facts = check(procedure.value());
  const std::string what = options.file.empty() ? options.algorithm : options.file;
  if (!facts.ok()) {
    const std::string reason = cat(what, " is refused: ", facts.error().message);
    if (options.json) {
      out << Json{{"ok", false}, {"reason", reason}}.dump(-1, ' ', false,
                                                          Json::error_handler_t::replace)
          << "\n";
      return 3;
    }
    errors << "tenuto collective: " << told(reason) << "\n";
    return 3;
  }
  if (options.json) {
    Json tree = {{"ok", true}};
    tree.update(facts_json(facts.value()));
    out << tree.dump() << "\n";
    return 0;
  }
  out << cat(what, " is right: ", facts_text(facts.value()), "\n");
  return 0;
}

int run_collective_price(const CollectiveOptions& options, std::ostream& out,
                         std::ostream& errors) {
  auto setting = setting_of(options);
  if (!setting.ok()) return refuse(setting.error(), errors);
  const auto found = priced(options, setting.value());
  if (!found.ok()) return refuse(found.error(), errors);
  const Procedure& procedure = found.value().procedure;
  const ProcedurePrice& price = found.value().price;
  if (price.last == kLongestTime) {
    return refuse(
        invalid(cat(
            "--bytes ", options.bytes, " at --gigabytes-per-second ", options.gigabytes_per_second,
            " and --alpha-us ", options.alpha_us,
            ": the call would take longer than 73 years, the longest time that tenuto can count: "
            "expected fewer bytes, a higher rate or a shorter latency")),
        errors);
  }
  Bytes most;
  for (const Bytes sent : price.sent) most = std::max(most, sent);
  const auto latest =
      *std::max_element(setting.value().arrivals.begin(), setting.value().arrivals.end());
  const auto rounds = procedure.collective.rounds.size();
  if (options.json) {
    Json tree = {{"finish_ms", to_milliseconds(price.last)},
                 {"after_last_arrival_ms", to_milliseconds(price.last - latest)},
                 {"rounds", rounds},
                 {"chunks", procedure.collective.chunk_count},
                 {"bytes_per_member", most.count},
                 {"algorithm", procedure.name},
                 {"reason", found.value().reason}};
    if (procedure.name == "late-one") {
      const Duration delay = break_even_delay(options.members, procedure.collective.chunk_count,
                                              {options.bytes}, setting.value().link);
      tree["break_even_delay_ms"] = to_milliseconds(delay);
    }
    out << tree.dump() << "\n";
    return 0;
  }
  out << cat(procedure.name, ": ", fixed(to_milliseconds(price.last), 3),
             " ms from the first arrival, ", fixed(to_milliseconds(price.last - latest), 3),
             " ms from the last one\n", rounds, " rounds of ", procedure.collective.chunk_count,
             " chunks; a member sends ", most.count, " bytes at most\n", found.value().reason,
             "\n");
  return 0;
}

void add_collective_command(CLI::App& app, Chosen chosen) {
  auto options = std::make_shared<CollectiveOptions>();
  CLI::App* command = app.add_subcommand(
      "collective", "All-reduce algorithms as data, to look at, to check and to price");
  command->require_subcommand(1);
  const auto with_shape = [options](CLI::App& of, const char* algorithm, const char* late) {
    of.add_option("--algorithm", options->algorithm, algorithm);
    number_flag(of, "--members", options->members, whole_numbers(1, kMostMembers),
                "number of members (8)");
    number_flag(of, "--chunks", options->chunks, whole_numbers(0),
                "chunks of the tensor (0 = the algorithm chooses)");
    of.add_option("--late", options->late, late);
    number_flag(of, "--root", options->root, whole_numbers(0),
                "rank that sends in a broadcast (0)");
    of.add_flag("--json", options->json, "one JSON object on stdout");
  };
  CLI::App* list = command->add_subcommand("list", "every known algorithm");
  list->footer("Example: tenuto collective list");
  list->add_flag("--json", options->json, "one JSON object on stdout");
  list->callback(
      [options, chosen] { chosen([options] { return run_collective_list(*options); }); });

  CLI::App* show = command->add_subcommand("show", "the rounds as text and as picture");
  show->footer(
      "Example: tenuto collective show --algorithm late-one --members 5 --late 4 --svg a.svg");
  path_flag(*show, "file", options->file, "a procedure's text");
  with_shape(*show, "a name from tenuto collective list (ring)", "RANK[,RANK...] in order");
  path_flag(*show, "--svg", options->picture, "write the picture of the rounds to this file");
  show->callback(
      [options, chosen] { chosen([options] { return run_collective_show(*options); }); });

  CLI::App* check = command->add_subcommand(
      "check", "checks that a procedure is correct; exit code 3 if it is not");
  check->footer("Example: tenuto collective check mine.txt");
  path_flag(*check, "file", options->file, "a procedure's text");
  with_shape(*check, "a name from tenuto collective list (ring)", "RANK[,RANK...] in order");
  check->callback(
      [options, chosen] { chosen([options] { return run_collective_check(*options); }); });

  CLI::App* price = command->add_subcommand(
      "price", "how long an all-reduce takes until its last member has the result");
  price->footer(
      "Example: tenuto collective price --members 8 --bytes 67108864 --alpha-us 10 "
      "--gigabytes-per-second 12.5 --late 3:20 --algorithm auto");
  with_shape(*price, "a name from tenuto collective list, or auto (ring)",
             "RANK:MS[,RANK:MS...]: the member starts so many ms after the others");
  number_flag(*price, "--bytes", options->bytes, whole_numbers(0, kMostTensor),
              "size of the tensor (67108864)");
  number_flag(*price, "--alpha-us", options->alpha_us, {0, 1e9}, "microseconds a message (10)");
  number_flag(*price, "--gigabytes-per-second", options->gigabytes_per_second, {1e-9, 1e6},
              "rate of every link in each direction (12.5)");
  price->add_option(
      "--slow-link", options->slow_link,
      "RANK-RANK:FACTOR[,...]: this link has FACTOR times the rate, in both directions; "
      "RANK:FACTOR: so do all links of this member");
  price->callback(
      [options, chosen] { chosen([options] { return run_collective_price(*options); }); });
}

}  // namespace tenuto
