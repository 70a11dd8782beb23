#include "bench/stolen_time.h"

#include <fstream>
#include <sstream>
#include <string>

namespace tenuto {

// Reads the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal; the
// guest times behind them are already part of the first two.
StolenTime::Counted StolenTime::now() {
  std::ifstream file("/proc/stat");
  std::string line, name;
  std::getline(file, line);
  std::istringstream words(line);
  words >> name;
  Counted counted;
  int64_t ticks = 0;
  for (int i = 0; i < 8 && words >> ticks; ++i) {
    counted.all += ticks;
    if (i == 7) counted.stolen = ticks;
  }
  return counted;
}

double StolenTime::share() const {
  const Counted end = now();
  if (end.all <= begin_.all) return 0;
  return static_cast<double>(end.stolen - begin_.stolen) /
         static_cast<double>(end.all - begin_.all);
}

}  // namespace tenuto
