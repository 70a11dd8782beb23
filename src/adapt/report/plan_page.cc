#include "adapt/report/plan_page.h"

#include <algorithm>
#include <ostream>

#include "adapt/report/map_drawing.h"
#include "adapt/report/map_layout.h"
#include "adapt/report/mapping.h"
#include "adapt/report/topology.h"
#include "adapt/report/torch_plan.h"
#include "base/text.h"
#include "sim/html.h"

namespace tenuto {

namespace {

// The most stages or links of a table.
constexpr size_t kMostRows = 512;
// The most places for which the page has a table of rates.
constexpr size_t kMostMatrix = 16;

class PageWriter {
 public:
  PageWriter(std::ostream& out, const PlanReport& report)
      : out_(out), report_(report), topology_(report.problem, *report.cluster) {}

  void write() {
    const std::string title = cat("tenuto plan: ", headline_of(report_));
    begin_page(out_, {title, kMapStyle, false});
    out_ << "<h1>tenuto plan</h1>\n<p>" << html(headline_of(report_)) << ".</p>\n";
    write_figures();
    write_cuts();
    write_rows_split();
    if (report_.training) write_training();
    if (report_.torch) write_torch();
    write_rates();
    end_page(out_);
  }

 private:
  void write_figures() {
    const LayoutSearch& search = report_.search;
    const double makespan = search.best.schedule.makespan;
    const Busy busy = busiest(search.best.loads);
    out_ << "<ul class=\"facts\">\n";
    write_fact(out_, "step, rows split", cat(ms_text(makespan), " ms"),
               cat("lower bound ", ms_text(search.lower_bound), " ms"));
    write_fact(out_, "bottleneck, rows split", name_of(busy),
               cat(percent(share_of(busy.time, makespan)), " busy"));
    if (report_.training) {
      write_fact(out_, "step, micro-batches in turn", milliseconds_of(report_.training->step),
                 cat("lower bound ", milliseconds_of(report_.training->lower_bound)));
    }
    write_fact(out_, "places", cat(topology_.place_count()),
               topology_.place_count() > 1
                   ? cat(rate_text(topology_.between_all()), " between places")
                   : cat(rate_text(topology_.inside(0)), " inside"));
    out_ << "</ul>\n";
  }

  static std::string milliseconds_of(Duration time) {
    return cat(fixed(to_milliseconds(time), 3), " ms");
  }

  void write_cuts() {
    if (report_.cuts.empty()) return;
    out_ << "<h2>Rows of a micro-batch</h2>\n<pre>"
         << html(alternatives_text(report_.cuts,
                                   {report_.micro_rows, report_.search.best.loads.micros}))
         << "</pre>\n";
  }

  void write_rows_split() {
    out_ << "<h2>Rows split over replicas</h2>\n<p>In this picture and its tables every replica "
            "of a stage computes an equal part of each micro-batch. "
         << (report_.training
                 ? "Tenuto trains whole micro-batches in turn; the picture below shows that plan."
                 : "Tenuto trains whole micro-batches in turn: with <code>--plan "
                   "FILE</code> this page also shows the plan for that.")
         << "</p>\n";
    const Mapping mapping = rows_split_mapping(report_);
    write_picture("split", "Stages and their devices, rows split over replicas", mapping);
    std::vector<Fact> facts = facts_of(report_);
    add_slow(facts);
    write_facts(facts);
    TextRows links = link_rows(report_);
    for (size_t n = 0; n < links.size(); ++n) {
      links[n].push_back(n == 0 ? "bytes of a micro-batch"
                                : bytes_text(mapping.links[n - 1].bytes));
    }
    out_ << "<h3>Stages</h3>\n";
    write_table(stage_rows(report_), "stages", "layers");
    if (links.size() > 1) {
      out_ << "<h3>Links between stages</h3>\n";
      write_table(links, "links", "links");
    }
  }

  void write_training() {
    out_ << "<h2>Whole micro-batches in turn: the plan for training</h2>\n<p>In this picture and "
            "its tables each replica of a stage takes whole micro-batches. A device is busy while "
            "it runs forwards and backwards.</p>\n";
    const Mapping mapping = in_turn_mapping(report_, *report_.training);
    write_picture("turn", "Stages and their devices, whole micro-batches in turn", mapping);
    std::vector<Fact> facts = training_facts(report_);
    add_idle(mapping, facts);
    add_slow(facts);
    write_facts(facts);
    write_mapping_tables(mapping);
  }

  void write_torch() {
    out_ << "<h2>The plan for PyTorch</h2>\n<pre>"
         << html(torch_text(*report_.torch, report_.torch_folder, *report_.training)) << "</pre>\n";
    const Mapping mapping = in_turn_mapping(report_, *report_.torch);
    write_picture("torch", "Stages and their devices, equal pipelines for PyTorch", mapping);
    write_mapping_tables(mapping);
  }

  void write_picture(const char* id, const char* title, const Mapping& mapping) {
    out_ << "<figure>\n<figcaption>" << html(cluster_text()) << "</figcaption>\n"
         << "<div class=\"wide\">\n";
    draw_map(out_, {id, title, report_, topology_, mapping});
    out_ << "</div>\n";
    write_map_legend(out_);
    out_ << "</figure>\n";
  }

  // "8 devices in 2 places, 6.25 GB/s between places".
  std::string cluster_text() const {
    const size_t places = topology_.place_count();
    const auto devices = static_cast<size_t>(report_.problem.device_count());
    return cat(counted(devices, "device"), " in ", counted(places, "place"),
               places > 1 ? cat(", ", rate_text(topology_.between_all()), " between places")
                          : std::string(),
               report_.problem.half_duplex() ? "; both directions of a link share its rate"
                                             : "; a rate is that of the slower direction");
  }

  void write_facts(const std::vector<Fact>& facts) {
    out_ << "<table class=\"words\">\n";
    for (const Fact& fact : facts) {
      out_ << "<tr><th scope=\"row\">" << html(fact.name) << "</th><td>" << html(fact.text)
           << "</td></tr>\n";
    }
    out_ << "</table>\n";
  }

  // The numbers of the workers of these devices.
  std::string numbers_text(const std::vector<int32_t>& devices) const {
    std::vector<int32_t> workers;
    for (const int32_t device : devices) workers.push_back(report_.problem.worker(device).value);
    return ranges_text(workers);
  }

  // The devices that no stage of the mapping has.
  void add_idle(const Mapping& mapping, std::vector<Fact>& facts) const {
    std::vector<bool> used(static_cast<size_t>(report_.problem.device_count()));
    for (const MappedStage& stage : mapping.stages) {
      for (const int32_t device : stage.devices) used[static_cast<size_t>(device)] = true;
    }
    std::vector<int32_t> idle;
    for (size_t i = 0; i < used.size(); ++i) {
      if (!used[i]) idle.push_back(static_cast<int32_t>(i));
    }
    if (!idle.empty()) facts.push_back({"idle", cat("devices ", numbers_text(idle))});
  }

  void add_slow(std::vector<Fact>& facts) const {
    std::vector<int32_t> slow;
    double least = 1, most = 0;
    for (int32_t device = 0; device < report_.problem.device_count(); ++device) {
      if (!is_slow(report_.problem, device)) continue;
      slow.push_back(device);
      least = std::min(least, report_.problem.speed(device));
      most = std::max(most, report_.problem.speed(device));
    }
    if (!slow.empty()) {
      facts.push_back(
          {"slow", cat("devices ", numbers_text(slow), ", speed ", speed_text(least, most))});
    }
  }

  void write_mapping_tables(const Mapping& mapping) {
    out_ << "<h3>Stages</h3>\n";
    write_table(mapped_stage_rows(report_, mapping), "stages", "plain");
    if (mapping.links.empty()) return;
    out_ << "<h3>Links between stages</h3>\n";
    write_table(mapped_link_rows(mapping), "links", "plain");
  }

  // The first row has the names of the columns; `what` is the name of the other rows.
  void write_table(const TextRows& rows, const char* what, const char* kind = "") {
    out_ << cat("<div class=\"wide\"><table class=\"", kind, "\">\n");
    for (size_t n = 0; n < std::min(rows.size(), kMostRows + 1); ++n) {
      out_ << "<tr>";
      for (const std::string& cell : rows[n]) {
        out_ << (n == 0 ? "<th scope=\"col\">" : "<td>") << html(cell)
             << (n == 0 ? "</th>" : "</td>");
      }
      out_ << "</tr>\n";
    }
    out_ << "</table></div>\n";
    if (rows.size() <= kMostRows + 1) return;
    out_ << cat("<p>", rows.size() - 1 - kMostRows, " more ", what,
                " are in the output of <code>--json</code>.</p>\n");
  }

  // The rates between any two places.
  void write_rates() {
    const size_t count = topology_.place_count();
    if (count < 2 || count > kMostMatrix) return;
    TextRows rows = {{"place", "devices"}};
    for (size_t p = 0; p < count; ++p) rows[0].push_back(cat(p));
    for (size_t p = 0; p < count; ++p) {
      auto& row =
          rows.emplace_back(std::vector<std::string>{cat(p), numbers_text(topology_.devices(p))});
      for (size_t q = 0; q < count; ++q) {
        const RateRange rates = p == q ? topology_.inside(p) : topology_.between(p, q);
        row.push_back(rates.empty() ? "-" : rate_text(rates));
      }
    }
    out_ << "<h2>Rates within and between places</h2>\n";
    write_table(rows, "places");
  }

  std::ostream& out_;
  const PlanReport& report_;
  Topology topology_;
};

}  // namespace

void write_plan_page(std::ostream& out, const PlanReport& report) {
  PageWriter(out, report).write();
}

}  // namespace tenuto
