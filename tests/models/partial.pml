/* Recovery by partial replay: only needed values that no live worker has are made again.
 *
 * Ops as in replay.pml. Workers keep what they sent until its step is committed. After a freeze the
 * coordinator reads what each member has (its inventory: frozen workers do not change). Then
 * salvage() gives each member a list: what to forward, what to add to its sum, what to make for
 * others only, what to send again. Only a worker that has stepped and owes an output is undone: it
 * undoes the step, makes the output, and steps again with the total that it kept.
 *
 * C4 and C5 read the members themselves, not their reports: between its report and the decision a
 * member can only die, and could as well have died after the decision.
 *
 * Bugs that the search must find: INPLACE, TOTAL, STALE, NOKEEP, NOREDO, FREETOTAL. */

#ifdef STALE
#define READS_OLD_EPOCHS
#endif

/* By worker and parity of the step; masks of micro-batches. */
#define of(w, step) ((w) * 2 + ((step) & 1))
byte input[8];  /* received and not used up: activations at the second stage, else gradients */
byte stash[8];  /* first stage: forwarded, its gradient not yet added */
byte kept[8];   /* outputs made, kept until the commit */
byte summed[8]; /* in this worker's sum */
byte total[8];  /* 1: the sum of the whole stage is here */
/* The list: ops to run; which of them add to the sum; outputs to send again. */
byte make[8], add[8], again[8];
byte copies[8]; /* 1: the total is to be copied, from the holder that has it */
bool undone[4];

#define clear_step(k) \
  input[k] = 0; stash[k] = 0; kept[k] = 0; summed[k] = 0; total[k] = 0; \
  make[k] = 0; add[k] = 0; again[k] = 0; copies[k] = 0
inline die(w) {
  clear_step((w) * 2);
  clear_step((w) * 2 + 1);
  epoch[w] = 0; version[w] = 0; seen[w] = 0; undone[w] = false
}

#include "cluster.pml"

hidden byte p, q, m, place, lost, j;

/* W6: frees what was kept for the committed step; its place serves the step after the next. */
inline hear_commit(w) {
  if
  :: seen[w] < committed ->
    assert(version[w] >= committed);
    p = of(w, committed - 1);
    clear_step(p);
    seen[w] = committed;
    if
    :: committed + 1 < STEPS -> make[p] = own(current, w); add[p] = make[p]
    :: else
    fi
  :: else
  fi
}

#define stage_has(set, s, step, m) \
  ((is_in(current, 2 * (s)) && has(set[of(2 * (s), step)], m)) || \
   (is_in(current, 2 * (s) + 1) && has(set[of(2 * (s) + 1, step)], m)))
#define home(s, m) \
  (is_in(current, 2 * (s)) && (!((m) & 1) || !is_in(current, 2 * (s) + 1)) -> 2 * (s) \
                                                                           : 2 * (s) + 1)
/* The holder of a stage that has the micro-batch in `set`, else its home. */
#define holder_with(set, s, step, m) \
  (is_in(current, 2 * (s)) && has(set[of(2 * (s), step)], m) -> 2 * (s) : \
   (is_in(current, 2 * (s) + 1) && has(set[of(2 * (s) + 1, step)], m) -> 2 * (s) + 1 \
                                                                      : home(s, m)))
#ifdef TOTAL
#define stage_total(s, step) false
#else
#define stage_total(s, step) stage_has(total, s, step, 0)
#endif

/* The first stage adds the gradients that its sum lacks. Sets `lost` if one of them is gone. */
inline salvage_first(step) {
  if
  :: !stage_total(0, step) && !stage_has(summed, 0, step, m) ->
    place = holder_with(stash, 0, step, m);
    add[of(place, step)] = add[of(place, step)] | (1 << m);
    if
    :: !has(stash[of(place, step)], m) -> make[of(place, step)] = make[of(place, step)] | (1 << m)
    :: else
    fi;
    if
    :: !has(input[of(place, step)], m) ->
      if
      :: stage_has(kept, 1, step, m) ->
        q = of(holder_with(kept, 1, step, m), step);
        again[q] = again[q] | (1 << m)
      :: else -> lost = 1 /* the second stage makes it again */
      fi
    :: else
    fi
  :: else
  fi
}

/* The second stage makes what its sum lacks, and lost gradients; it gets the activation again. */
inline salvage_second(step) {
  j = !stage_total(1, step) && !stage_has(summed, 1, step, m);
  if
  :: j || lost ->
    place = holder_with(input, 1, step, m);
    make[of(place, step)] = make[of(place, step)] | (1 << m);
    add[of(place, step)] = add[of(place, step)] | (j << m);
    if
    :: !has(input[of(place, step)], m) ->
      if
      :: stage_has(kept, 0, step, m) ->
        q = of(holder_with(kept, 0, step, m), step);
        again[q] = again[q] | (1 << m)
#ifndef NOKEEP
      :: else ->
        if
        :: !stage_has(make, 0, step, m) ->
          q = of(holder_with(stash, 0, step, m), step);
          make[q] = make[q] | (1 << m)
        :: else
        fi
#else
      :: else
#endif
      fi
    :: else
    fi
  :: else
  fi
}

inline salvage(step) {
  for (i : 0 .. 3) {
    q = of(i, step);
    if
    :: is_in(current, i) ->
      make[q] = 0; add[q] = 0; again[q] = 0;
      copies[q] = stage_total(i / 2, step) && !total[q];
      if :: copies[q] -> summed[q] = 0 :: else fi
    :: else
    fi
  }
  if
  :: step < STEPS ->
    for (m : 0 .. N - 1) {
      lost = 0;
      salvage_first(step);
      salvage_second(step)
    }
  :: else
  fi;
  i = 0; m = 0; lost = 0; place = 0; q = 0; j = 0
}

#define at_work(w) (phase[w] == Running && version[w] < STEPS)
#define now(w) of(w, version[w])
#define sent(set, w) set[slot(epoch[w], version[w])]
#define my_part(w) part_of(epoch[w], version[w], w)
#define peers_part(w) part_of(epoch[w], version[w], peer_of(w))
#define peer_total(w) \
  (is_in(epoch[w], peer_of(w)) && lives(peer_of(w)) && epoch[peer_of(w)] == epoch[w] && \
   phase[peer_of(w)] == Running && total[of(peer_of(w), version[w])])

#define RECEIVE(w, m) \
  :: d_step { \
       at_work(w) && !has(input[now(w)], m) && \
         (w < 2 -> has(add[now(w)], m) && has(sent(gradients, w), m) \
                : has(make[now(w)], m) && has(sent(activations, w), m)) -> \
       input[now(w)] = input[now(w)] | (1 << m) \
     }
#define FORWARD(w, m) \
  :: d_step { \
       at_work(w) && w < 2 && has(make[now(w)], m) -> \
       make[now(w)] = make[now(w)] & ~(1 << m); \
       kept[now(w)] = kept[now(w)] | (1 << m); \
       if \
       :: has(add[now(w)], m) -> stash[now(w)] = stash[now(w)] | (1 << m) \
       :: else \
       fi; \
       sent(activations, w) = sent(activations, w) | (1 << m) \
     }
#define BACKWARD(w, m) \
  :: d_step { \
       at_work(w) && w < 2 && has(add[now(w)], m) && has(stash[now(w)], m) && \
         has(input[now(w)], m) -> \
       add[now(w)] = add[now(w)] & ~(1 << m); \
       stash[now(w)] = stash[now(w)] & ~(1 << m); \
       input[now(w)] = input[now(w)] & ~(1 << m); \
       summed[now(w)] = summed[now(w)] | (1 << m) \
     } \
  :: d_step { \
       at_work(w) && w > 1 && has(make[now(w)], m) && has(input[now(w)], m) -> \
       make[now(w)] = make[now(w)] & ~(1 << m); \
       input[now(w)] = input[now(w)] & ~(1 << m); \
       kept[now(w)] = kept[now(w)] | (1 << m); \
       if \
       :: has(add[now(w)], m) -> summed[now(w)] = summed[now(w)] | (1 << m) \
       :: else \
       fi; \
       add[now(w)] = add[now(w)] & ~(1 << m); \
       sent(gradients, w) = sent(gradients, w) | (1 << m) \
     }

hidden byte merged;

active [4] proctype worker() {
  byte w = _pid - 4;
  make[w * 2] = own(0, w);
  add[w * 2] = own(0, w);
#if STEPS > 1
  make[w * 2 + 1] = own(0, w);
  add[w * 2 + 1] = own(0, w);
#endif
end:
  do
  RECEIVE(w, 0)
  RECEIVE(w, 1)
  FORWARD(w, 0)
  FORWARD(w, 1)
  BACKWARD(w, 0)
  BACKWARD(w, 1)
  :: d_step { /* W3 */
       at_work(w) && !my_part(w) && !total[now(w)] && !make[now(w)] && !add[now(w)] &&
         !copies[now(w)] ->
       my_part(w) = Posted | summed[now(w)]
     }
#ifdef INPLACE
  :: d_step { /* the peer's part is added to the worker's own sum before all have finished */
       at_work(w) && my_part(w) && is_in(epoch[w], peer_of(w)) && peers_part(w) &&
         summed[now(w)] != FULL ->
       summed[now(w)] = summed[now(w)] | (peers_part(w) & FULL)
     }
#endif
  :: d_step { /* W4 */
       at_work(w) && my_part(w) && !total[now(w)] &&
         (!is_in(epoch[w], peer_of(w)) || peers_part(w)) ->
       merged = my_part(w) & FULL;
       if
       :: is_in(epoch[w], peer_of(w)) ->
         assert(!(merged & peers_part(w) & FULL)); /* each micro-batch is in one sum */
         merged = merged | (peers_part(w) & FULL)
       :: else
       fi;
#ifdef STALE
       if
       :: epoch[w] > 0 && !is_in(epoch[w], peer_of(w)) && is_in(epoch[w] - 1, peer_of(w)) ->
         assert(!(merged & part_of(epoch[w] - 1, version[w], peer_of(w)) & FULL))
       :: else
       fi;
#endif
       assert(merged == FULL);
       total[now(w)] = 1;
       summed[now(w)] = 0
     }
  :: d_step { /* a total that a live peer has is copied */
       at_work(w) && copies[now(w)] && peer_total(w) ->
       copies[now(w)] = 0;
       total[now(w)] = 1
     }
  :: d_step { /* W5 */
       at_work(w) && total[now(w)] && !make[now(w)] && seen[w] >= version[w] ->
#ifdef FREETOTAL
       total[now(w)] = 0;
#endif
       version[w]++;
       assert(version[w] <= committed + 1); /* one undo suffices */
       undone[w] = false
     }
  :: d_step { lives(w) && phase[w] == Running && epoch[w] == current && seen[w] < committed &&
              target != NONE ->
       hear_commit(w)
     }
  :: d_step { /* W7 */
       lives(w) && epoch[w] < current ->
       epoch[w] = current;
       if :: undone[w] -> version[w]++; undone[w] = false :: else fi;
       if
       :: is_in(current, w) -> phase[w] = Frozen
       :: else -> phase[w] = Out; die(w)
       fi;
       forget()
     }
  :: d_step { /* W8 */
       phase[w] == Frozen && epoch[w] == current && target != NONE ->
       for (i : committed .. committed + 1) {
         q = of(w, i);
         if
         :: w < 2 -> activations[slot(current, i)] = activations[slot(current, i)] | again[q]
         :: else -> gradients[slot(current, i)] = gradients[slot(current, i)] | again[q]
         fi;
         again[q] = 0
       }
       i = 0;
#ifndef NOREDO
       if
       :: version[w] == committed + 1 && make[of(w, committed)] ->
         assert(total[of(w, committed)]); /* it steps again with this total */
         version[w] = committed;
         undone[w] = true
       :: else
       fi;
#endif
       phase[w] = Running
     }
  od
}

#define all(holds) \
  ((!is_in(current, 0) || holds(0)) && (!is_in(current, 1) || holds(1)) && \
   (!is_in(current, 2) || holds(2)) && (!is_in(current, 3) || holds(3)))
#define has_stepped(w) \
  (epoch[w] == current && phase[w] == Running && version[w] == committed + 1)
#define has_frozen(w) (epoch[w] == current && phase[w] == Frozen)
#define is_ahead(w) (version[w] > committed)

inline commit() {
  forget_step(committed);
  committed++
}

active proctype coordinator() {
end:
  do
  :: d_step { target != NONE && all(has_stepped) -> commit() } /* C4 */
  :: d_step { /* C5 */
       target == NONE && all(has_frozen) ->
       for (i : 0 .. 3) {
         assert(!is_in(current, i) ||
                (version[i] >= committed && version[i] <= committed + 1))
       }
       if :: all(is_ahead) -> committed++ :: else fi;
       for (j : 0 .. 3) {
         if :: is_in(current, j) -> hear_commit(j) :: else fi
       }
       salvage(committed);
       salvage(committed + 1);
       p = 0;
       target = committed
     }
  od
}

#define is_done(w) (version[w] == STEPS && phase[w] == Running)

/* When nothing can move, all is done: every member has taken every step, and the journal says so. */
active proctype watch() {
  timeout -> assert(committed == STEPS && all(is_done))
}
