// The bare round trip: whatever comes goes back.
process.stdin.on("data", (chunk) => process.stdout.write(chunk))
process.stdin.on("end", () => process.exit(0))
