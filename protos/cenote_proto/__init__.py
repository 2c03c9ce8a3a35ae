"""The wire contract: protocol buffers and the code generated from them."""
