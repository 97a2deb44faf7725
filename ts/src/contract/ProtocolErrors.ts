/** The errors of JSON-RPC itself: runtime.md section 1. Their kinds are as stable as ours. */

export const PROTOCOL_ERRORS = {
  parse_error: {
    code: -32700,
    error: "ParseError",
    message: "The line is not JSON in UTF-8: send one message a line."
  },
  invalid_envelope: {
    code: -32600,
    error: "InvalidEnvelope",
    message: "The line is JSON, and no JSON-RPC 2.0 request."
  },
  method_not_found: { code: -32601, error: "MethodNotFound", message: "There is no such method." },
  invalid_params: { code: -32602, error: "InvalidParams", message: "The params do not fit the method's schema." },
  internal_error: { code: -32603, error: "InternalError", message: "The core failed; its standard error says more." }
} as const

export type ProtocolErrorKind = keyof typeof PROTOCOL_ERRORS
