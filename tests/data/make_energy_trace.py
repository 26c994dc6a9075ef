"""Write energy_trace.jsonl: a comparison of two sides on a simulated counter, of 5 % apart.

python -m tests.data.make_energy_trace

It was not recorded on a card: the counter of tests/energy/simulated.py made it.
"""

from pathlib import Path

from kernelpro.energy import trace
from tests.energy.simulated import simulate

FILE = Path(__file__).with_name("energy_trace.jsonl")

if __name__ == "__main__":
    trace.write(FILE, simulate(20261128, watts=(420.0, 399.0), pairs=4))
