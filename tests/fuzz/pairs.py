"""Tuples that branches choose and loops carry, in random programs: packed, unpacked, packed again; plain ones and named tuples.

Lines with places: {p} the tuple, {s} and {t} what is unpacked, {c} a condition, {x}, {y}, {x2} and {y2} what it starts with, {next} and {other}
a pass over {s} and over {t}, {pack} a new tuple of them, {n} a counter, {most} its end. Whoever fills them runs what comes out and drops what
fails.
"""
# A name for the class of named tuples, which a program defines where it is used.
NAMED = "import collections\n\nPair = collections.namedtuple(\"Pair\", \"left right\")\n"

PACKS = ["({next}, {t})", "({t}, {next})", "({s}, {other})", "({next}, {other})", "(*{p}[1:], {next})", "{p}[::-1]", "({p}[1], {s})", "({t}, {s})",
         "{p}[:1] + ({other},)", "({next}, {t}) if {c} else {p}", "tuple([{next}, {t}])"]
NAMED_PACKS = ["Pair({next}, {t})", "Pair({t}, {next})", "{p}._replace(left={next})", "Pair(*{p}[::-1])", "Pair(right={next}, left={other})",
               "Pair({p}.right, {p}.left)", "Pair({next}, {other}) if {c} else {p}"]

BRANCHES = [
    ["if {c}:", "    {p} = ({x}, {y})", "else:", "    {p} = ({x2}, {y2})", "{s}, {t} = {p}"],
    ["{p} = ({x}, {y})", "if {c}:", "    {s}, {t} = {p}", "    {p} = {pack}", "{s}, {t} = {p}"],
    ["{p} = ({x}, {y})", "if {c}:", "    {s}, {t} = {p}", "    {p} = {pack}", "else:", "    {t}, {s} = {p}", "    {p} = {pack}", "{s}, {t} = {p}"],
    ["{p} = ({x}, {y}) if {c} else ({x2}, {y2})", "{s}, {t} = {p}"],
    ["{p} = ({x}, {y})", "{s}, {t} = {p}", "if {c}:", "    {s}, {t} = {t}, {s}", "{p} = ({s}, {t})", "{s}, {t} = {p}"],
    ["{p} = (({x}, {y}), {x2})", "if {c}:", "    ({s}, {t}), {n} = {p}", "    {p} = (({n}, {t}), {s})", "({s}, {t}), {n} = {p}"],
]
LOOPS = [
    ["{p}, {n} = ({x}, {y}), 0", "while {n} < {most} and {c}:", "    {s}, {t} = {p}", "    {p} = {pack}", "    {n} += 1", "{s}, {t} = {p}"],
    ["{p}, {n} = ({x}, {y}), 0", "while True:", "    {s}, {t} = {p}", "    {p} = {pack}", "    {n} += 1", "    if {c} or {n} >= {most}:",
     "        break", "{s}, {t} = {p}"],
    ["{p} = ({x}, {y})", "for {n} in range({most}):", "    {s}, {t} = {p}", "    {p} = {pack}", "    if {c}:", "        break", "{s}, {t} = {p}"],
    ["{p} = ({x}, {y})", "for {n} in range({most}):", "    if {c}:", "        continue", "    {s}, {t} = {p}", "    {p} = {pack}", "{t}, {s} = {p}"],
    ["{p}, {n} = ({x}, {y}), 0", "while {n} < {most} and {c}:", "    {s}, {t} = {p}", "    if {c}:", "        {p} = {pack}", "    else:",
     "        {p} = {pack}", "    {n} += 1", "{s}, {t} = {p}"],
    ["{p} = ({x}, ({y}, 0))", "while {p}[1][1] < {most} and {c}:", "    {s}, ({t}, {n}) = {p}", "    {p} = ({next}, ({other}, {n} + 1))",
     "{s}, ({t}, {n}) = {p}"],
    ["{p} = ({x}, {y}, 0)", "while {p}[2] < {most} and {c}:", "    {s}, {t}, {n} = {p}", "    {p} = ({t}, {next}, {n} + 1)", "{s}, {t}, {n} = {p}"],
    ["{p}, {n} = ({x}, {y}), 0", "while {n} < {most} and {c}:", "    {p} = ({p}[1], {p}[0] + {p}[1])", "    {n} += 1", "{s}, {t} = {p}"],
    ["{p}, {n} = ({x}, {y}), 0", "for {s} in ({x2}, {y2}):", "    {p} = ({p}[0] + {s}, {p}[1])", "    if {c}:", "        {p} = {p}[::-1]",
     "{s}, {t} = {p}"],
]
# Of the tuple inside of the loop or behind it, and of what is always there.
CONDITIONS = ["{p}[0].sum() < 9", "abs({p}[0]).max() < 5", "({p}[1] > 1).any()", "{p}[0].sum() < {p}[1].sum()",
              "not ({p}[0] > {p}[1]).any()", "({p}[1] != 0).all()"]


def lines_of(r, fill, fresh, conditions, starts, passes, named=False, data=True):
    """(lines without indentation, names of {s} and {t}) of a branch or a loop that carries a tuple.

    fill: replaces other places; fresh: gives a new name; conditions: those that need no tuple; starts and passes: texts, passes with {t} for
    what they take; named: whether the program has the class Pair; data: False where the elements of the tuple must not decide."""
    p, s, t, n = (fresh() for _ in range(4))
    lines, chosen = r.choice(r.choice([BRANCHES, LOOPS, LOOPS])), {}
    named = named and any("{pack}" in line for line in lines)

    def pass_over(name):
        return r.choice(passes).replace("{t}", name)

    def condition(known):
        chosen = r.choice(CONDITIONS if data and known and r.random() < 0.75 else conditions)
        return f"({chosen})" if " or " in chosen else chosen

    def text(line, known):
        if named:
            line = line.replace("({x}, {y})", "Pair({x}, {y})").replace("({x2}, {y2})", "Pair({x2}, {y2})")
        line = line.replace("{pack}", r.choice(NAMED_PACKS if named else PACKS))
        while "{c}" in line:
            line = line.replace("{c}", condition(known), 1)
        for place in ("{x}", "{y}", "{x2}", "{y2}"):
            if place in line:
                # {x2} and {y2} may stand for {x} and {y} of the other way.
                chosen[place] = r.choice(starts(chosen.get(place.replace("2", ""))))
                line = line.replace(place, chosen[place])
        line = line.replace("{next}", pass_over(s)).replace("{other}", pass_over(t)).replace("{most}", str(r.choice([2, 3, 4])))
        for place, name in (("{p}", p), ("{s}", s), ("{t}", t), ("{n}", n)):
            line = line.replace(place, name)
        return fill(line)

    made, known = [], False
    for line in lines:
        made.append(text(line, known))
        known = known or "{p}" in line.split("=")[0] and "if {c}" not in line
    return made, [s, t]
