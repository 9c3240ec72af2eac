"""A sandbox with files, limits, streaming and checkpoints."""

import brig

# One line, one sandbox.
print(brig.run("print(6 * 7)").stdout, end="")

with brig.Sandbox(timeout=20) as box:
    box.files.write("data.csv", "name,score\nada,3\nlin,4\n")
    result = box.run("import csv; print(sum(int(row['score']) for row in csv.DictReader(open('data.csv'))))")
    assert result.ok and result.stdout == "7\n", result.stderr

    # Output as it comes.
    for piece in box.start(["sh", "-c", "for n in 1 2 3; do echo line $n; done"]):
        print(piece.text, end="")

    # Saved, changed, put back.
    box.checkpoints.save("before")
    box.run(["rm", "data.csv"], check=True)
    box.restore("before")
    assert box.files.read_text("data.csv").startswith("name,score")

    # There is no network unless it is asked for, and every attempt is listed.
    result = box.run("import socket; socket.create_connection(('192.0.2.1', 443), timeout=5)")
    print([(one.kind, one.what, one.code) for one in result.denied])
