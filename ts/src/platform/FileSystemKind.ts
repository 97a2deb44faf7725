/** File systems on which locks do not hold between hosts: runtime.md section 6. Linux tells them apart. */
import { readFileSync, statfsSync } from "node:fs"

/** `f_type` of statfs(2). */
const NETWORK: ReadonlyMap<number, string> = new Map([
  [0x6969, "NFS"],
  [0x517b, "SMB"],
  [0xff534d42, "CIFS"],
  [0xfe534d42, "SMB2"],
  [0x564c, "NCP"],
  [0x5346414f, "AFS"],
  [0x6b414653, "AFS"],
  [0x73757245, "Coda"],
  [0x00c36400, "Ceph"],
  [0x0bd00bd0, "Lustre"],
  [0x47504653, "GPFS"]
])

const FUSE = 0x65735546
/** FUSE serves local and remote files; the mount names the program. */
const NETWORK_FUSE =
  /^fuse\.(sshfs|rclone|s3fs|goofys|gcsfuse|blobfuse2?|glusterfs|ceph|davfs2?|cifs|smbnetfs|juicefs)$/

/** The name of the network file system that a type of statfs(2) and a mount's type stand for; null for a local one. */
export const networkKind = (type: number, mountType: string): string | null =>
  NETWORK.get(type) ?? (type === FUSE && NETWORK_FUSE.test(mountType) ? mountType : null)

export const networkFileSystem = (path: string): string | null => {
  if (process.platform === "win32") return path.startsWith("\\\\") ? "a network share" : null
  if (process.platform !== "linux") return null
  const { type } = statfsSync(path)
  return networkKind(type, type === FUSE ? mountTypeOf(path, readFileSync("/proc/self/mountinfo", "utf8")) : "")
}

/** The type of the mount that a path is on: of the last one whose mount point is the longest prefix of it. */
export const mountTypeOf = (path: string, mountinfo: string): string => {
  let found = { point: "", type: "" }
  for (const line of mountinfo.split("\n")) {
    const [before = "", after = ""] = line.split(" - ")
    const point = (before.split(" ")[4] ?? "").replaceAll(/\\(\d{3})/g, (_, octal: string) =>
      String.fromCharCode(Number.parseInt(octal, 8))
    )
    const within = point !== "" && (path === point || path.startsWith(point === "/" ? "/" : `${point}/`))
    if (within && point.length >= found.point.length) found = { point, type: after.split(" ")[0] ?? "" }
  }
  return found.type
}
