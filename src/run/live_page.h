// The page of a run, which its coordinator serves: docs/page.md. A thread of its own answers
// browsers and Prometheus; the coordinator's thread shows it snapshots and answers its wishes.
//
// Idea:  no client may reach the run. What is shown is a value that the coordinator makes a few
//        times a second while somebody looks, and otherwise every few seconds; prices and texts are
//        made by the page's thread. Wishes come as the questions of `tenuto inject` do, and few may
//        wait at once.
// Right: tests/page (the server and the texts), tests/run/page_view_test.cc,
//        tests/app/live_page_test.py (a real run).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/unit.h"
#include "control/decide.h"
#include "control/server.h"
#include "page/board.h"
#include "page/server.h"
#include "page/site.h"
#include "run/page_view.h"
#include "run/record.h"
#include "run/run_files.h"
#include "run/run_input.h"
#include "run/served_steps.h"

namespace tenuto {

// The page of one run. All but look() and ask() belongs to the coordinator's thread.
class LivePage : public page::Source {
 public:
  // `input` must outlive it.
  explicit LivePage(const RunInput& input) : input_(input) {}
  LivePage(const LivePage&) = delete;
  LivePage& operator=(const LivePage&) = delete;
  ~LivePage() override;

  // Begins to serve, and writes page.url and page.token into the folder of the run. `bell` is rung
  // when a wish has come. A page that cannot be served is no error of the run.
  //
  // Returns: the sentence that the user should see; empty = none
  std::string start(std::function<void()> bell);
  // The run has ended: removes these files. The page is served until it is destroyed.
  void leave() const;

  // Another coordinator has begun the run: shows its events, as they are in the folder of the run.
  // If they cannot be read, they are missing. Called before start(), so that none is taken twice.
  void take_up_events();
  // The same of a step, with a line of the metrics.
  void take_up(const MetricsLine& line);
  // An event of the run, as RunFiles writes it. It may say that another plan or sync mode is taken,
  // and what this was chosen from.
  void note(const std::string& kind, RunMoment moment, const std::string& sentence,
            const EventDetails& details);
  // A step is done.
  void add(const StepRecord& step);
  // The same of a run with server shards.
  void add(const ServedStep& step);
  // Whether a snapshot should be shown now.
  bool is_due() const;
  // Shows the run as it is now.
  void show(const State& state);
  // The same of a run with server shards.
  void show(const ServedStatus& status, const ServedProcesses& processes);

  // The wishes since the last call; each wants one answer.
  std::vector<Question> take_questions();
  // Whether a question with this number came from here.
  static bool is_question(int64_t question) { return question < 0; }
  // Answers one, as Server::answer does.
  void answer(int64_t question, const std::string& text, const std::string& failure);

  std::shared_ptr<const page::Picture> look() override;
  bool ask(int64_t ticket, const std::string& wish) override;

 private:
  // What the coordinator's thread shows.
  struct View {
    page::Snapshot snapshot;
    std::shared_ptr<const PlanRequest> question;  // the plan to be priced; null = none
  };
  Result<std::string> take_token() const;
  std::string earlier_address() const;
  void take_event(const std::string& line);
  void add_step(const page::ShownStep& step, const std::optional<double>& validation_loss,
                const std::optional<double>& validation_accuracy);
  void show(page::Snapshot snapshot, std::shared_ptr<const PlanRequest> question);
  void price(const View& view);

  const RunInput& input_;
  // Of the coordinator's thread.
  page::History history_;
  std::string why_ = "it is the first one";
  std::vector<page::ShownAlternative> alternatives_;
  int64_t compared_in_ = 0;  // step of the event that has them
  KnownTimes times_;
  std::shared_ptr<const PlanRequest> question_;
  std::optional<std::pair<int64_t, Duration>> before_;  // the newest step, and when it ended on the
                                                        // devices' clock
  page::Board<View> board_;
  std::mutex mutex_;  // guards questions_, and nothing else is locked under it
  std::vector<Question> questions_;
  std::function<void()> bell_;
  // Of the page's thread.
  std::shared_ptr<const View> seen_;
  std::shared_ptr<const page::Picture> picture_;
  std::shared_ptr<const PlanRequest> priced_;
  std::vector<page::Promise> promises_;
  // Both.
  std::optional<page::Site> site_;
  std::unique_ptr<page::HttpServer> server_;  // null: there is no page
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

// A server of workers whose questions are also those of the page.
std::unique_ptr<Server> with_page(std::unique_ptr<Server> server, LivePage& live);

}  // namespace tenuto
