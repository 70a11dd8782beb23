/* State transfer: a joiner copies the state of a stage that trains on: rules J1 to J6.
 *
 * Two holders take steps. The joiner gets the state in chunks from one of them, advances each
 * chunk by the gradient totals that it is sent, and is admitted when all chunks are at the
 * committed version. A step may be abandoned and attempted again, and the new attempt may give
 * other bits. A state is right if each of its steps is from the attempt that was committed.
 *
 * Options: ABORTS, KILLS (of a holder or of the joiner), STEPS.
 * Bugs that the search must find: UNCOMMITTED, NOTAG. */

#ifndef STEPS
#define STEPS 3
#endif
#ifndef KILLS
#define KILLS 0
#endif
#ifndef ABORTS
#define ABORTS 0
#endif

#define CHUNKS 2
#define J 2 /* the joiner */
#define Nobody 7

bool dead[3];
byte member = 3;                 /* of the stage: bits of workers */
byte version[3], seen[3];        /* of members: the state, and the last commit heard */
byte made_by[3];                 /* of members ahead of `seen`: the attempt that made that version */
byte committed, this_try;        /* the journal; the attempt at the step under way */
byte winner[STEPS + 1];          /* the attempt that was committed, by version */

/* The joiner's chunks: version, try of the last step, and whether an earlier step is wrong. */
byte chunk[CHUNKS] = Nobody, chunk_try[CHUNKS];
bool spoiled[CHUNKS];
byte cut[CHUNKS] = Nobody, cut_try[CHUNKS]; /* on its way to the joiner */
byte totals;                     /* sent to the joiner: bits of committed steps */
byte donor;
byte kills = KILLS, aborts = ABORTS;
hidden byte k;

#define is_member(w) ((member >> (w)) & 1)
#define works(w) (is_member(w) && !dead[w])
#define others_stepped(w) \
  ((w) == 0 || !is_member(0) || version[0] > committed) && \
  ((w) == 1 || !is_member(1) || version[1] > committed)
/* A chunk is right: its last step and all before are those that were committed. */
#define is_true(c) (!spoiled[c] && chunk_try[c] == winner[chunk[c]])
#ifdef NOTAG
#define is_ready (chunk[0] != Nobody && chunk[1] != Nobody)
#else
#define is_ready (chunk[0] == committed && chunk[1] == committed)
#endif

active [2] proctype holder() {
  byte w = _pid;
end:
  do
  :: d_step { /* the update, when the commit of the step before is known */
       works(w) && version[w] < STEPS && seen[w] >= version[w] ->
       version[w]++;
       made_by[w] = this_try;
       assert(version[w] <= committed + 1)
     }
  :: d_step { /* J3: the total of the committed step goes to the joiner before it is freed */
       works(w) && seen[w] < committed ->
       seen[w] = committed;
       assert(version[w] >= committed);
       if :: donor == w && !is_member(J) -> totals = totals | (1 << (committed - 1)) :: else fi
     }
  od
}

/* J2: between two steps the donor copies a chunk of the committed version: of its state or, when
 * its newest step is not committed yet, of the backup. */
#define COPY(c) \
  :: d_step { \
       works(donor) && !dead[J] && !is_member(J) && cut[c] == Nobody && \
         (chunk[c] == Nobody || (chunk[c] < seen[donor] && !((totals >> chunk[c]) & 1))) -> \
       CUT(c) \
     } \
  :: d_step { \
       !dead[J] && cut[c] != Nobody -> \
       chunk[c] = cut[c]; \
       chunk_try[c] = cut_try[c]; \
       spoiled[c] = false; \
       cut[c] = Nobody; \
       cut_try[c] = 0 \
     }
#ifdef UNCOMMITTED
#define CUT(c) \
  cut[c] = version[donor]; \
  cut_try[c] = (version[donor] > seen[donor] -> made_by[donor] : winner[version[donor]])
#else
#define CUT(c) \
  cut[c] = seen[donor]; \
  cut_try[c] = winner[seen[donor]]
#endif
/* J3: the update of one chunk by the total of its step. */
#define ADVANCE(c) \
  :: d_step { \
       !dead[J] && !is_member(J) && chunk[c] != Nobody && ((totals >> chunk[c]) & 1) -> \
       if :: is_true(c) -> skip :: else -> spoiled[c] = true fi; \
       chunk[c]++; \
       chunk_try[c] = winner[chunk[c]] \
     }

active proctype joiner() {
end:
  do
  COPY(0)
  COPY(1)
  ADVANCE(0)
  ADVANCE(1)
  :: d_step { /* once admitted it steps like the others, with the total of the step */
       works(J) && version[J] < STEPS && seen[J] >= version[J] ->
       version[J]++;
       made_by[J] = this_try
     }
  :: d_step { works(J) && seen[J] < committed -> seen[J] = committed }
  od
}

#define has_stepped(w) (!is_member(w) || (!dead[w] && version[w] == committed + 1))

active proctype coordinator() {
end:
  do
  :: d_step { /* C4 */
       has_stepped(0) && has_stepped(1) && has_stepped(J) && committed < STEPS ->
       for (k : 0 .. 2) { assert(!is_member(k) || made_by[k] == this_try) }
       committed++;
       winner[committed] = this_try;
       this_try = 0
     }
  :: d_step { /* J5 */
       !is_member(J) && !dead[J] && is_ready ->
       assert(chunk[0] == committed && chunk[1] == committed && is_true(0) && is_true(1));
       member = member | (1 << J);
       version[J] = committed;
       seen[J] = committed
     }
  :: d_step { /* the step is abandoned: the members undo early updates, and so does the joiner (J6) */
       aborts > 0 && committed < STEPS ->
       aborts--;
       for (k : 0 .. 2) {
         if :: works(k) && version[k] > committed -> version[k] = committed; made_by[k] = 0
         :: else
         fi;
         if :: works(k) && seen[k] < committed && (k == J || k != donor || is_member(J)) ->
           seen[k] = committed
         :: works(k) && seen[k] < committed && k == donor && !is_member(J) ->
           seen[k] = committed;
           totals = totals | (1 << (committed - 1))
         :: else
         fi
       }
       this_try++
     }
  :: d_step { /* a holder or the joiner dies; a chunk that misses a total is copied again */
       kills > 0 && !dead[0] && (!dead[1] || works(J)) ->
       kills--; dead[0] = true
     }
  :: d_step { kills > 0 && !dead[1] && (!dead[0] || works(J)) -> kills--; dead[1] = true }
  :: d_step { kills > 0 && !dead[J] && (!dead[0] || !dead[1]) -> kills--; dead[J] = true }
  :: d_step { is_member(0) && dead[0] -> member = member & 6; donor = (dead[1] -> J : 1) }
  :: d_step { is_member(1) && dead[1] -> member = member & 5; donor = (dead[0] -> J : 0) }
  :: d_step { is_member(J) && dead[J] -> member = member & 3 }
  od
}

#define is_done(w) (dead[w] || version[w] == STEPS)

/* When nothing can move, every step is committed and the joiner is a member. */
active proctype watch() {
  timeout ->
    assert(committed == STEPS && is_done(0) && is_done(1) && is_done(J) &&
           (dead[J] || is_member(J)))
}
