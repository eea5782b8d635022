/** What went wrong, in the server's words, with the id by which its log knows the request. */
import { html } from "../app/dom.js";

/** @param {{ problem: any, again?: () => void }} props */
export function Failed({ problem, again }) {
  if (!problem) return null;
  return html`<div class="failed" role="alert">
    <p>${problem.message}</p>
    <p class="quiet">
      ${problem.code && html`<code>${problem.code}</code> `}
      ${problem.requestId && html`request <code>${problem.requestId}</code> `}
      ${again && html`<button type="button" class="link" onClick=${again}>Try again</button>`}
    </p>
  </div>`;
}

/** Shows what an answer gives, or why there is none yet. @param {{ of: { answer: any, problem: any, again: () => void }, children: any }} props */
export function Loaded({ of, children }) {
  if (of.answer === null && of.problem === null) return html`<p class="quiet" role="status">Loading …</p>`;
  return html`<${Failed} problem=${of.problem} again=${of.again} />${of.answer !== null && children(of.answer)}`;
}
