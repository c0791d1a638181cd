"""Machine code from a process of its own, for targets of which LLVM can write but one module.

This file is also the program of that process, and imports nothing of the library.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from llvmlite import binding as llvm


def run(ir: str, triple: str, cpu: str, features: str, *, text: bool) -> bytes:
    """The object code of a module, or its assembly ``text``; RuntimeError if there is none."""
    request = json.dumps([ir, triple, cpu, features, text]).encode()
    command = [sys.executable, "-P", __file__]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, input=request, capture_output=True, env=environment, check=False)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip()
        raise RuntimeError(f"LLVM wrote no code for {triple} (status {done.returncode}): {reason}")
    return done.stdout


def _main() -> None:
    ir, triple, cpu, features, text = json.loads(sys.stdin.buffer.read())
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(triple)
    # Loop strength reduction, which comes with opt, cuts integers down to 3 bits, say, and LLVM 22
    # writes those as 8 bits to SPIR-V. The module is optimised already, and drivers do the rest.
    machine = target.create_target_machine(cpu=cpu, features=features, opt=0)
    module = llvm.parse_assembly(ir)
    code = machine.emit_assembly(module).encode() if text else machine.emit_object(module)
    sys.stdout.buffer.write(code)


if __name__ == "__main__":
    _main()
