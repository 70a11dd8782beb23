#include "run/fault_news.h"

#include <algorithm>

#include "base/text.h"

namespace tenuto {

void FaultAnnouncer::look(const Fault& fault, int32_t hog, int64_t open,
                          std::vector<FaultNews>& news) const {
  const bool first = told_ < 0;
  const bool begins =
      first ? in_force(fault, open) : told_ < fault.at_step && fault.at_step <= open;
  if (begins && fault.at_step < steps_) {
    news.push_back({fault.at_step,
                    cat("injected fault: ", lasts(fault) ? "from" : "in", " step ", fault.at_step,
                        lasts(fault) ? " on " : " ", describe(fault)),
                    fault.kind == "start" ? fault.worker : std::string(), hog});
  }
  const bool ends = !first && told_ < fault.until_step && fault.until_step <= open;
  if (ends && fault.until_step < steps_) {
    news.push_back({fault.until_step,
                    cat("injected fault ends at step ", fault.until_step, ": ", describe(fault)),
                    {},
                    hog,
                    true});
  }
}

std::vector<FaultNews> FaultAnnouncer::advance(int64_t open, const std::vector<Fault>& wanted) {
  std::vector<FaultNews> news;
  for (size_t i = 0; i < faults_.size(); ++i) {
    look(faults_[i], is_hog(faults_[i]) ? static_cast<int32_t>(i) : -1, open, news);
  }
  for (const Fault& fault : wanted) look(fault, -1, open, news);
  std::stable_sort(news.begin(), news.end(), [](const FaultNews& left, const FaultNews& right) {
    return left.step < right.step;
  });
  told_ = std::max(told_, open);
  return news;
}

}  // namespace tenuto
