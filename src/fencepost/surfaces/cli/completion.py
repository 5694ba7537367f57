"""`fencepost completion SHELL`: a script that completes words as they are typed.

Each script hands the words before the cursor to `fencepost completion words`, which answers with one candidate a line:
the word, and behind a tab what it is. So the three shells know the same, and what they know is read from the commands
and the store. It only reads, looks at most three seconds, and says nothing where anything is wrong: a shell that waits
or prints errors while somebody types is worse than one that completes nothing.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from types import FrameType
from typing import Annotated, Any, Final, Literal

from cyclopts import App, Parameter, Token

from fencepost.surfaces.cli.context import NO_GLOBALS, Globals, emit

app = App(name="completion", help="Print a script that completes words in bash, zsh or fish.")

WAIT_S: Final = 3.0
CANDIDATES_MAX: Final = 1_000

BASH: Final = """\
# fencepost: completion for bash. In ~/.bashrc: eval "$(fencepost completion bash)"
_fencepost() {
    local word line before n=0 i
    local -a words
    words=()
    # Readline breaks words at : and =, which are parts of a word here.
    for ((i = 1; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if ((n)) && [[ $word == [:=]* || ${words[n - 1]} == *[:=] ]]; then
            words[n - 1]+=$word
        else
            words[n]=$word
            ((n += 1))
        fi
    done
    word=${words[n - 1]}
    before=${word%"${word##*[:=]}"}
    COMPREPLY=()
    while IFS=$'\\t' read -r line _; do
        case $line in
            :files | :folders)
                compopt -o filenames 2>/dev/null
                if [[ $line == :files ]]; then i=-f; else i=-d; fi
                while IFS= read -r line; do
                    # What is hidden is offered to whoever types its dot.
                    [[ ${line##*/} == .* && ${word##*/} != .* ]] || COMPREPLY+=("$line")
                done < <(compgen "$i" -- "$word")
                ;;
            ?*)
                [[ $line == */ ]] && compopt -o nospace 2>/dev/null
                COMPREPLY+=("${line#"$before"}")
                ;;
        esac
    done < <("${COMP_WORDS[0]}" completion words -- "${words[@]}" 2>/dev/null </dev/null)
}
complete -F _fencepost fencepost
"""

ZSH: Final = """\
#compdef fencepost
# fencepost: completion for zsh. In ~/.zshrc, after compinit: eval "$(fencepost completion zsh)"
_fencepost() {
    local -a lines shown values open_shown open_values
    local line
    lines=("${(@f)$("${words[1]}" completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null </dev/null)}")
    for line in $lines; do
        case $line in
            :files) _files ;;
            :folders) _files -/ ;;
            '') ;;
            *)
                if [[ ${line%%$'\\t'*} == */ ]]; then
                    open_values+=("${line%%$'\\t'*}")
                    open_shown+=("${line/$'\\t'/  -- }")
                else
                    values+=("${line%%$'\\t'*}")
                    shown+=("${line/$'\\t'/  -- }")
                fi
                ;;
        esac
    done
    (( $#values )) && compadd -l -d shown -a values
    (( $#open_values )) && compadd -l -S '' -d open_shown -a open_values
    return 0
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _fencepost "$@"
else
    compdef _fencepost fencepost
fi
"""

FISH: Final = """\
# fencepost: completion for fish. In ~/.config/fish/config.fish: fencepost completion fish | source
function __fencepost_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l program $words[1]
    set -e words[1]
    for line in ($program completion words -- $words "$current" 2>/dev/null </dev/null)
        switch $line
            case ':files'
                __fish_complete_path "$current"
            case ':folders'
                __fish_complete_directories "$current"
            case '*'
                echo $line
        end
    end
end
complete -c fencepost -f -a '(__fencepost_complete)'
"""

ASKING: Final = "words"
SCRIPTS: Final = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def _shell(_type: Any, tokens: Sequence[Token]) -> Any:
    """A shell, or what its script asks with, which nobody types and nothing offers."""
    word = tokens[0].value
    if word not in (*SCRIPTS, ASKING):
        near = get_close_matches(word, SCRIPTS, n=1)
        meant = f" Did you mean {near[0]}?" if near else ""
        raise ValueError(f"{word!r} is no shell that is known: choose from {', '.join(SCRIPTS)}.{meant}")
    return word


@app.default
def completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish"],
        Parameter(help="Which shell.", converter=_shell),
    ],
    /,
    *typed: Annotated[str, Parameter(help="Words before the cursor: what the scripts ask about.")],
    options: Globals = NO_GLOBALS,
) -> int:
    script = SCRIPTS.get(shell)
    if script is not None:
        emit(options, {"shell": shell, "script": script}, lambda out: print(script, end="", file=out))
        return 0
    print_candidates(list(typed))
    return 0


def print_candidates(typed: Sequence[str]) -> None:
    """Print what the last word may become, and nothing at all where that cannot be found out in time."""
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 2)
    os.close(silent)
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.setitimer(signal.ITIMER_REAL, WAIT_S)
    try:
        from fencepost.surfaces.cli.completion_words import candidates

        found = candidates(typed)[:CANDIDATES_MAX]
    except Exception:  # whatever it is, a shell in the middle of a line has no use for it
        found = []
    signal.setitimer(signal.ITIMER_REAL, 0)
    for word, about in found:
        sys.stdout.write(f"{word}\t{about}\n" if about else f"{word}\n")
    sys.stdout.flush()


def _out_of_time(_number: int, _frame: FrameType | None) -> None:
    os._exit(0)
