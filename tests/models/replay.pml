/* Recovery by abandoning the step and replaying it: rules C1 to C6, W1 to W8.
 *
 * A forward of the first stage sends an activation. One op of the second stage turns it into a
 * gradient and adds to its sum; the first stage adds to its own sum when the gradient is there.
 * Each sum is posted with the mask of the micro-batches in it. A worker steps when the sums of all
 * members of the stage are there and the version before is committed.
 *
 * Bugs that the search must find: FENCE, UNDO, PHASE, FIRST, AHEAD, KEEPACC, JOURNAL, DECISION. */

#ifdef FENCE
#define READS_OLD_EPOCHS
#endif

byte forwarded[4], summed[4]; /* of the worker's step: micro-batches */
byte report[4];               /* the newest one that has arrived */
#ifdef JOURNAL
byte written; /* the committed version in the journal; `committed` is what workers hear */
#endif

inline die(w) { forwarded[w] = 0; summed[w] = 0; epoch[w] = 0; version[w] = 0; seen[w] = 0 }

#include "cluster.pml"

byte restarts = RESTARTS;

#define state_of(w) (1 + (epoch[w] * 2 + phase[w]) * 8 + version[w])
#define reported(w, p, v) (report[w] == 1 + (current * 2 + (p)) * 8 + (v))
#define reported_epoch(w) (report[w] > 0 && (report[w] - 1) / 16 == current)
#define reported_version(w) ((report[w] - 1) % 8)
#ifdef PHASE
#define has_stepped(w) (reported_epoch(w) && reported_version(w) == committed + 1)
#define has_frozen(w) reported_epoch(w)
#else
#define has_stepped(w) reported(w, Running, committed + 1)
#define has_frozen(w) (reported_epoch(w) && (report[w] - 1) / 8 % 2 == Frozen)
#endif
#define all(holds) \
  ((!is_in(current, 0) || holds(0)) && (!is_in(current, 1) || holds(1)) && \
   (!is_in(current, 2) || holds(2)) && (!is_in(current, 3) || holds(3)))
#ifdef FIRST
#define stepped_by(w) (is_in(current, w) && has_stepped(w))
#define may_commit ((stepped_by(0) || stepped_by(1)) && (stepped_by(2) || stepped_by(3)))
#else
#define may_commit all(has_stepped)
#endif

#ifdef FENCE
hidden byte old;
/* The bug reads the newest part of any epoch up to e. */
inline find_part(e, step, w) {
  old = 0;
  for (i : 0 .. e) {
    if :: part_of(i, step, w) -> old = part_of(i, step, w) :: else fi
  }
  i = 0
}
#endif

hidden byte merged;

#define at_work(w) (phase[w] == Running && version[w] < STEPS)
#define sent(set, w) set[slot(epoch[w], version[w])]
#define my_part(w) part_of(epoch[w], version[w], w)
#define peers_part(w) part_of(epoch[w], version[w], peer_of(w))

#define FORWARD(w, m) \
  :: d_step { \
       at_work(w) && w < 2 && has(own(epoch[w], w), m) && !has(forwarded[w], m) -> \
       forwarded[w] = forwarded[w] | (1 << m); \
       sent(activations, w) = sent(activations, w) | (1 << m) \
     }
#define BACKWARD(w, m) \
  :: d_step { \
       at_work(w) && w < 2 && has(forwarded[w], m) && !has(summed[w], m) && \
         has(sent(gradients, w), m) -> \
       summed[w] = summed[w] | (1 << m) \
     } \
  :: d_step { \
       at_work(w) && w > 1 && has(own(epoch[w], w), m) && !has(summed[w], m) && \
         has(sent(activations, w), m) -> \
       summed[w] = summed[w] | (1 << m); \
       sent(gradients, w) = sent(gradients, w) | (1 << m) \
     }

active [4] proctype worker() {
  byte w = _pid - 4;
end:
  do
  FORWARD(w, 0)
  FORWARD(w, 1)
  BACKWARD(w, 0)
  BACKWARD(w, 1)
#if N > 2
  FORWARD(w, 2)
  FORWARD(w, 3)
  BACKWARD(w, 2)
  BACKWARD(w, 3)
#endif
  :: d_step { /* W3 */
       at_work(w) && !my_part(w) && (summed[w] & own(epoch[w], w)) == own(epoch[w], w) ->
       my_part(w) = Posted | summed[w]
     }
  :: d_step { /* W4, W5 */
       at_work(w) && my_part(w) &&
#ifndef AHEAD
         seen[w] >= version[w] &&
#endif
         (!is_in(epoch[w], peer_of(w)) || peers_part(w)) ->
       merged = my_part(w) & FULL;
#ifdef FENCE
       find_part(epoch[w], version[w], peer_of(w));
       assert(!(merged & old & FULL)); /* each micro-batch is in one sum */
       merged = merged | (old & FULL);
#else
       if
       :: is_in(epoch[w], peer_of(w)) ->
         assert(!(merged & peers_part(w) & FULL));
         merged = merged | (peers_part(w) & FULL)
       :: else
       fi;
#endif
       assert(merged == FULL);
       version[w]++;
       assert(version[w] <= committed + 1); /* one undo suffices */
       forwarded[w] = 0;
       summed[w] = 0
     }
  :: d_step { /* W6 */
       lives(w) && epoch[w] == current && seen[w] < committed -> seen[w] = committed
     }
  :: d_step { /* W7 */
       lives(w) && epoch[w] < current ->
       epoch[w] = current;
       if
       :: is_in(current, w) ->
         phase[w] = Frozen;
         assert(version[w] >= committed);
         seen[w] = committed
       :: else -> phase[w] = Out; die(w)
       fi;
       forwarded[w] = 0;
#ifndef KEEPACC
       summed[w] = 0;
#endif
       forget()
     }
  :: d_step { /* W8 */
       phase[w] == Frozen && epoch[w] == current && target != NONE ->
       assert(version[w] <= target + 1);
#ifndef UNDO
       version[w] = target;
#endif
       seen[w] = committed;
       phase[w] = Running
     }
  :: d_step { lives(w) && report[w] != state_of(w) -> report[w] = state_of(w) }
  od
}

inline commit() {
  for (i : 0 .. 3) { /* all live members have what is committed */
    assert(!is_in(current, i) || !lives(i) || version[i] > committed)
  }
  forget_step(committed);
  committed++
}

active proctype coordinator() {
end:
  do
  :: d_step { target != NONE && may_commit -> commit() } /* C4 */
#ifdef JOURNAL
  :: d_step { written < committed -> written = committed }
#endif
  :: d_step { /* C5 */
       target == NONE && all(has_frozen) ->
       target = NONE;
       for (i : 0 .. 3) {
         if
         :: is_in(current, i) && reported_version(i) < target -> target = reported_version(i)
         :: else
         fi
       }
       assert(target >= committed); /* no committed step is lost */
       if :: target > committed -> commit() :: else fi
     }
  :: d_step { /* C6 */
       restarts > 0 ->
       restarts--;
       report[0] = 0; report[1] = 0; report[2] = 0; report[3] = 0;
#ifdef JOURNAL
       assert(seen[0] <= written && seen[1] <= written && seen[2] <= written &&
              seen[3] <= written);
       committed = written;
#endif
#ifdef DECISION
       if :: current > 0 -> target = NONE :: else fi;
#endif
     }
  od
}

#define is_done(w) (version[w] == STEPS && phase[w] == Running)

/* When nothing can move, all is done: every member has taken every step, and the journal says so. */
active proctype watch() {
  timeout -> assert(committed == STEPS && all(is_done))
}
