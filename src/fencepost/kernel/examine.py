"""Whether the scope's authority can work: everyone enrolled, with the key and the grant that the records name, and a
constitution that can be evaluated."""

from __future__ import annotations

from fencepost.core.state import AuthorityState
from fencepost.core.vocabulary import ACTIONS, HUMAN_PRINCIPAL, SERVICE_PRINCIPALS
from fencepost.kernel.identities import Identities
from fencepost.ports.authority import Authority, Keyring, Question

_BROKEN = frozenset({"constitution_invalid", "evaluation_error", "no_decision"})


def authority_problems(state: AuthorityState, authority: Authority, keyring: Keyring) -> list[str]:
    """One sentence a problem, none where all is well. Raises what the keyring raises for a key that it cannot use."""
    identities = Identities(state)
    problems = []
    for name in (HUMAN_PRINCIPAL, *SERVICE_PRINCIPALS):
        try:
            identity = identities.named(name)
        except KeyError:
            problems.append(f"{name} is not enrolled")
            continue
        if keyring.public_key(name).hex() != state.principals[identity.principal].public_key:
            problems.append(f"the key of {name} is not the one that was enrolled")
        if not identity.grant:
            problems.append(f"{name} holds no grant")
        question = Question(
            principal_id=identity.principal,
            principal_kind=identity.kind,
            principal_name=name,
            action=ACTIONS[0].pair.split("/")[0],
            resource_kind=ACTIONS[0].pair.split("/")[1],
        )
        reason = authority.decide(question).reason
        if reason in _BROKEN:
            problems.append(f"the constitution cannot be evaluated for {name} ({reason})")
    if state.constitution != authority.constitution.text_digest:
        problems.append("the constitution of this program is not the one in force")
    return problems
