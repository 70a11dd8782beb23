/* The common part of the models of recovery: two stages of two workers each, which may die or be
 * wrongly suspected, and the epochs of their membership.
 *
 * Workers 0 and 1 hold the first stage, 2 and 3 the second. The network is sets: what was sent
 * stays there, and a worker may read it at once, later, or never. A slow, stopped or cut-off worker
 * is one that is not scheduled. Directives are no messages: a worker reads the coordinator's state
 * at any later moment. So a worker that acts on an old directive is the same as one that read the
 * state before the coordinator changed it.
 * A set is emptied when no live worker can read it any more.
 *
 * Options: N micro-batches, STEPS, KILLS, WRONG suspicions, RESTARTS of the coordinator. */

#ifndef N
#define N 2
#endif
#ifndef STEPS
#define STEPS 2
#endif
#ifndef KILLS
#define KILLS 0
#endif
#ifndef WRONG
#define WRONG 0
#endif
#ifndef RESTARTS
#define RESTARTS 0
#endif

#define EPOCHS (1 + KILLS + WRONG)
#define FULL ((1 << N) - 1)
#define EVEN (5 & FULL)
#define ODD (10 & FULL)
#define NONE 15

#define Running 0
#define Frozen 1
#define Out 2
#define Dead 3

#define has(mask, m) (((mask) >> (m)) & 1)
#define peer_of(w) ((w) ^ 1)
#define lives(w) (phase[w] < Out)
#define is_in(e, w) has(members[e], w)
/* The micro-batches of a step that are routed to w in epoch e. */
#define own(e, w) (is_in(e, peer_of(w)) -> (((w) & 1) -> ODD : EVEN) : FULL)
/* Where the sets keep what is sent in epoch e for a step: two steps are open at once. */
#define slot(e, step) ((e) * 2 + ((step) & 1))
#define Posted 128

byte members[EPOCHS] = 15;
byte epoch[4], phase[4], version[4], seen[4];

/* The coordinator's journal: the epoch, the version decided for it, the committed version. */
byte current, target, committed;

byte activations[EPOCHS * 2], gradients[EPOCHS * 2]; /* sent, by slot: micro-batches */
byte part[EPOCHS * 8];                               /* posted, by slot and worker */
#define part_of(e, step, w) part[slot(e, step) * 4 + (w)]

byte kills = KILLS, wrong = WRONG;
hidden byte i, least;

/* Empties the sets of the epochs that no live worker is in any more. */
inline forget() {
  least = current;
  for (i : 0 .. 3) {
    if :: lives(i) && epoch[i] < least -> least = epoch[i] :: else fi
  }
#ifndef READS_OLD_EPOCHS
  for (i : 1 .. EPOCHS) {
    if
    :: i <= least ->
      activations[i * 2 - 2] = 0; activations[i * 2 - 1] = 0;
      gradients[i * 2 - 2] = 0; gradients[i * 2 - 1] = 0;
      part[i * 8 - 8] = 0; part[i * 8 - 7] = 0; part[i * 8 - 6] = 0; part[i * 8 - 5] = 0;
      part[i * 8 - 4] = 0; part[i * 8 - 3] = 0; part[i * 8 - 2] = 0; part[i * 8 - 1] = 0
    :: else
    fi
  }
#endif
  i = 0
}

/* Empties what was sent for a step in the present epoch: every member is past it. */
inline forget_step(step) {
  activations[slot(current, step)] = 0;
  gradients[slot(current, step)] = 0;
  part_of(current, step, 0) = 0; part_of(current, step, 1) = 0;
  part_of(current, step, 2) = 0; part_of(current, step, 3) = 0
}

/* C1: a dead or suspected worker leaves the members; the new epoch is undecided. */
inline suspect(w) {
  members[current + 1] = members[current] & (15 ^ (1 << w));
  current++;
  target = NONE
}
#define kept_by_peer(w) (is_in(current, peer_of(w)) && lives(peer_of(w)))

/* Kills workers while their stage keeps another holder; suspects workers, rightly or wrongly. */
active [4] proctype fate() {
  byte w = _pid;
end:
  do
  :: d_step {
       kills > 0 && lives(w) && is_in(current, w) && kept_by_peer(w) ->
       kills--;
       phase[w] = Dead;
       die(w);
       forget()
     }
  :: d_step { phase[w] == Dead && is_in(current, w) -> suspect(w); forget() }
  :: d_step {
       wrong > 0 && lives(w) && is_in(current, w) && kept_by_peer(w) ->
       wrong--;
       suspect(w)
     }
  od
}
